"""The settings of every service: one documented table, from which all readers work.

A setting has Kafka's dotted name (`zookeeper.session.timeout.ms`). Values are
taken, first match first, from

1. a topic's own settings,
2. what is set for one broker,
3. what is set for the cluster (these three while services run: `dynamic`),
4. what a service was started with: flags, environment, TOML file (`load`),
5. the default.

An unknown name is an error that offers the nearest known one. A name that
belongs to another service is passed over, so that one file, one environment or
one set of flags serves a whole cluster. `docs/settings.md` is generated from
the table.
"""

from leadline_common.settings.broker import BrokerSettings
from leadline_common.settings.controller import ControllerSettings
from leadline_common.settings.coordinator import CoordinatorSettings
from leadline_common.settings.levels import (
    Accepted,
    Level,
    accept_configs,
    accept_node,
    alter_configs,
    check_configs,
    may_be_set,
    parse_topic_configs,
    validate_topic_configs,
)
from leadline_common.settings.load import SettingsError, load_settings
from leadline_common.settings.resolution import (
    Layers,
    Resolved,
    Source,
    Synonym,
    describe,
    in_force,
    resolve,
    stated,
)
from leadline_common.settings.service import ServiceSettings
from leadline_common.settings.table import Setting, settings_table
from leadline_common.settings.topic import TopicConfigs

__all__ = [
    "Accepted",
    "BrokerSettings",
    "ControllerSettings",
    "CoordinatorSettings",
    "Layers",
    "Level",
    "Resolved",
    "ServiceSettings",
    "Setting",
    "SettingsError",
    "Source",
    "Synonym",
    "TopicConfigs",
    "accept_configs",
    "accept_node",
    "alter_configs",
    "check_configs",
    "describe",
    "in_force",
    "load_settings",
    "may_be_set",
    "parse_topic_configs",
    "resolve",
    "settings_table",
    "stated",
    "validate_topic_configs",
]

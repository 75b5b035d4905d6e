"""The settings of all services and topics, defined in one table.

Settings have Kafka's dotted names (`zookeeper.session.timeout.ms`). The value of a setting is the
first of

1. the dynamic setting of a topic,
2. the dynamic setting of one broker,
3. the dynamic setting of the cluster,
4. the static setting: flags, environment, TOML file (`load`),
5. the default.

An unknown name is an error that suggests the nearest known one. A setting of another service is
ignored, so that one file, one environment or one set of flags serves a whole cluster.
`docs/settings.md` is generated from the table.
"""

from leadline_common.settings.broker import BrokerSettings, TopicConfigs
from leadline_common.settings.controller import ControllerSettings
from leadline_common.settings.coordinator import CoordinatorSettings
from leadline_common.settings.fields import ServiceSettings
from leadline_common.settings.levels import (
    Accepted,
    Level,
    accept_configs,
    accept_node,
    alter_configs,
    check_configs,
    may_be_set,
    parse_topic_configs,
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
from leadline_common.settings.table import Setting, settings_table

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
]

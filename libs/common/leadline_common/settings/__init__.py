"""The settings of every service: one documented table, from which all readers work.

A setting has Kafka's dotted name (`zookeeper.session.timeout.ms`). Values are
taken, first match first, from

1. flags: `--set name=value`,
2. the environment: `LEADLINE_` and the name in upper case, underscores for dots,
3. a TOML file: `--config FILE` or `LEADLINE_CONFIG`,
4. the default.

An unknown name is an error that offers the nearest known one. A name that
belongs to another service is passed over, so that one file, one environment or
one set of flags serves a whole cluster. `docs/settings.md` is generated from
the table.
"""

from leadline_common.settings.load import (
    SettingsError,
    load_settings,
    parse_topic_configs,
    validate_topic_configs,
)
from leadline_common.settings.models import (
    BrokerSettings,
    ControllerSettings,
    ServiceSettings,
    TopicConfigs,
)
from leadline_common.settings.table import Setting, settings_table

__all__ = [
    "BrokerSettings",
    "ControllerSettings",
    "ServiceSettings",
    "Setting",
    "SettingsError",
    "TopicConfigs",
    "load_settings",
    "parse_topic_configs",
    "settings_table",
    "validate_topic_configs",
]

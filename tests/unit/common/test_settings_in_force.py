"""Which of several values of a setting holds, and what may be set at which level."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.errors import PolicyViolation
from leadline_common import znodes
from leadline_common.settings import (
    BrokerSettings,
    ControllerSettings,
    Layers,
    Level,
    SettingsError,
    Source,
    TopicConfigs,
    accept_configs,
    accept_node,
    alter_configs,
    check_configs,
    describe,
    in_force,
    load_settings,
    may_be_set,
    resolve,
    settings_table,
    stated,
)
from leadline_common.settings.table import known_settings

BROKER = BrokerSettings(broker_id=1, log_dir="/data")
LIMIT = "reassignment.max.concurrent.leader.movements"
ALIAS = "reassignment.parallel.leader.movements"
SERVICES = [row for row in settings_table() if row.owner != "topic"]

VALUES = st.integers(1, 200_000).map(str)
LEVELS = st.none() | VALUES


def layer(name: str, value: str | None) -> Mapping[str, str]:
    return {} if value is None else {name: value}


@given(topic=LEVELS, broker=LEVELS, cluster=LEVELS, static=LEVELS)
def test_the_closest_level_that_sets_a_value_wins(
    topic: str | None, broker: str | None, cluster: str | None, static: str | None
) -> None:
    """One law, three readers: the provenance, the service's settings, and the topic's over them."""
    service = "log.retention.ms"
    layers = Layers(
        topic=layer("retention.ms", topic),
        broker=layer(service, broker),
        cluster=layer(service, cluster),
        static=layer(service, static),
    )
    stack = [
        (topic, Source.TOPIC),
        (broker, Source.BROKER),
        (cluster, Source.CLUSTER),
        (static, Source.STATIC),
        (str(BROKER.log_retention_ms), Source.DEFAULT),
    ]
    expected = [(value, source) for value, source in stack if value is not None]
    found = resolve(known_settings(topics=True)["retention.ms"], layers)
    assert [(one.value, one.source) for one in found.synonyms] == expected
    assert (found.value, found.source) == expected[0]

    started = BROKER.model_copy(update={} if static is None else {"log_retention_ms": int(static)})
    current = in_force(started, layers.broker, layers.cluster)
    of_service = next(value for value, source in expected if source is not Source.TOPIC)
    assert current.log_retention_ms == int(of_service)


@given(
    st.dictionaries(
        st.sampled_from([row.name for row in SERVICES] + ["no.such"]), st.text("0123456789-x")
    ),
    st.sampled_from(["cluster", "broker"]),
)
def test_what_is_accepted_can_be_obeyed_and_the_rest_is_named(
    found: dict[str, str], level: Level
) -> None:
    accepted = accept_configs(level, found)
    assert accepted.values.keys() | accepted.problems.keys() == found.keys()
    assert not accepted.values.keys() & accepted.problems.keys()
    assert check_configs(level, accepted.values) == accepted.values
    assert isinstance(in_force(BROKER, accepted.values), BrokerSettings)


@given(
    st.dictionaries(st.sampled_from(["num.partitions", ALIAS, LIMIT, "junk"]), VALUES),
    st.dictionaries(st.sampled_from(["num.partitions", LIMIT]), VALUES),
    st.sets(st.sampled_from(["num.partitions", LIMIT, "junk"])),
)
def test_a_change_sets_and_removes_what_it_says_and_nothing_else(
    found: dict[str, str], configs: dict[str, str], remove: set[str]
) -> None:
    remove = {name for name in remove - configs.keys() if name != "junk" or name in found}
    after = alter_configs("cluster", found, configs, remove)
    for name, value in configs.items():
        assert after[name] == value
    assert not remove & after.keys()
    assert ("junk" in after) is ("junk" in found and "junk" not in remove)
    if LIMIT in remove or LIMIT in configs:
        assert ALIAS not in after
    assert alter_configs("cluster", after, {}, ()) == after


def test_an_unfounded_value_keeps_the_previous_one_and_a_removed_one_does_not() -> None:
    previous = {"num.partitions": "3", "min.insync.replicas": "1"}
    accepted = accept_configs("cluster", {"num.partitions": "three"}, previous)
    assert accepted.values == {"num.partitions": "3"}
    assert accepted.problems.keys() == {"num.partitions"}


def test_a_node_that_cannot_be_read_keeps_all_that_was_in_force() -> None:
    previous = {"num.partitions": "3"}
    for data in (b"not JSON", b"[]", b'{"configs": [1]}'):
        accepted = accept_node("cluster", data, previous)
        assert accepted.values == previous
        assert accepted.problems.keys() == {""}
    assert accept_node("cluster", None, previous).values == {}
    assert accept_node("cluster", znodes.encode_configs({}), previous).values == {}


def test_an_alias_is_accepted_wherever_the_name_is() -> None:
    assert check_configs("cluster", {ALIAS: 3}) == {LIMIT: "3"}
    assert accept_configs("cluster", {ALIAS: "3"}).values == {LIMIT: "3"}
    assert alter_configs("cluster", {ALIAS: "3"}, {LIMIT: 4}, ()) == {LIMIT: "4"}
    flags = {"controller.id": "1", ALIAS: "5"}
    settings = load_settings(ControllerSettings, flags=flags, environment={})
    assert settings.reassignment_max_concurrent_leader_movements == 5
    with pytest.raises(PolicyViolation, match="given twice"):
        check_configs("cluster", {ALIAS: 3, LIMIT: 3})
    with pytest.raises(SettingsError, match="given twice"):
        load_settings(ControllerSettings, flags={**flags, LIMIT: "5"}, environment={})


@pytest.mark.parametrize(
    ("level", "name", "says"),
    [
        ("cluster", "broker.id", "broker.id is read-only"),
        ("cluster", "open.files.max", "set it for one broker, not for the cluster"),
        ("broker", "min.insync.replicas", "set it for the cluster"),
        ("broker", LIMIT, "set it for the cluster"),
        ("broker", "listen.port", "listen.port is read-only"),
        ("cluster", "segment.bytes", "for a broker or the cluster it is log.segment.bytes"),
        ("topic", "log.segment.bytes", "a topic's own is segment.bytes"),
        ("topic", "broker.rack", "unknown topic config broker.rack"),
        ("cluster", "num.partition", "did you mean num.partitions?"),
    ],
)
def test_a_setting_at_the_wrong_level_is_refused_by_name_and_the_right_one_offered(
    level: Level, name: str, says: str
) -> None:
    with pytest.raises(PolicyViolation) as refusal:
        check_configs(level, {name: "16"})
    assert says in refusal.value.message
    assert refusal.value.details == {"config": name}


def test_every_setting_of_a_topic_follows_one_of_a_service_of_the_same_type_and_limits() -> None:
    services = known_settings(topics=False)
    for row in known_settings(topics=True).values():
        followed = services[row.follows]
        assert (row.type, row.unit) == (followed.type, followed.unit)
        assert (row.minimum, row.maximum) == (followed.minimum, followed.maximum)
        assert may_be_set("cluster", followed)


def test_every_level_shows_each_of_its_settings_once_by_name() -> None:
    topics = [found.setting.name for found in describe("topic", Layers())]
    assert topics == sorted(name.replace("_", ".") for name in TopicConfigs.model_fields)
    cluster = [found.setting.name for found in describe("cluster", Layers())]
    assert cluster == sorted({row.name for row in SERVICES})
    broker = {found.setting.name for found in describe("broker", Layers())}
    assert broker == {name.replace("_", ".") for name in BrokerSettings.model_fields}


def test_what_a_service_was_told_is_stated_and_its_defaults_are_not() -> None:
    told = load_settings(
        BrokerSettings,
        flags={"broker.id": "1", "log.dir": "/d", "controlled.shutdown.enable": "TRUE"},
        environment={"LEADLINE_LOG_SEGMENT_BYTES": "4096"},
    )
    assert stated(told) == {
        "broker.id": "1",
        "controlled.shutdown.enable": "true",
        "log.dir": "/d",
        "log.segment.bytes": "4096",
    }


def test_what_cannot_change_while_a_service_runs_does_not() -> None:
    current = in_force(BROKER, {"log.dir": "/elsewhere", "num.partitions": "3"})
    assert current == BROKER

"""Where settings come from, which source wins, and how wrong ones are refused."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from leadline_client.errors import PolicyViolation
from leadline_client.transport import IDLE_TIMEOUT_S
from leadline_common.settings import (
    BrokerSettings,
    ControllerSettings,
    CoordinatorSettings,
    SettingsError,
    TopicConfigs,
    check_configs,
    load_settings,
    parse_topic_configs,
    settings_table,
)

ROOT = Path(__file__).resolve().parents[3]
BROKER = {"broker.id": "1", "log.dir": "/data"}


def test_a_service_needs_only_what_has_no_default() -> None:
    settings = load_settings(BrokerSettings, flags=BROKER, environment={})
    assert settings.broker_id == 1
    assert settings.replica_lag_time_max_ms == 30_000
    assert settings.min_insync_replicas == 2
    assert settings.zookeeper_session_timeout_ms == 6_000


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "leadline.toml"
    file.write_text(
        "replica.lag.time.max.ms = 1001\n"
        "replica.fetch.wait.max.ms = 1002\n"
        "message.max.bytes = 1_000_003\n"
        '"stray.grace.ms" = 1004\n'
        "[log]\nlevel = 'debug'\n"
    )
    environment = {
        "LEADLINE_REPLICA_LAG_TIME_MAX_MS": "2001",
        "LEADLINE_REPLICA_FETCH_WAIT_MAX_MS": "2002",
        "LEADLINE_CONFIG": str(file),
        "PATH": "/bin",
    }
    flags = BROKER | {"replica.lag.time.max.ms": "3001"}
    settings = load_settings(BrokerSettings, flags=flags, environment=environment)
    assert settings.replica_lag_time_max_ms == 3001
    assert settings.replica_fetch_wait_max_ms == 2002
    assert settings.message_max_bytes == 1_000_003
    assert settings.stray_grace_ms == 1004
    assert settings.log_level == "debug"
    assert settings.open_files_max == 1024


def test_the_file_of_the_flag_is_read_instead_of_the_one_in_the_environment(tmp_path: Path) -> None:
    named = tmp_path / "named.toml"
    named.write_text("num.partitions = 7\n")
    settings = load_settings(
        ControllerSettings,
        flags={"controller.id": "1"},
        environment={"LEADLINE_CONFIG": str(tmp_path / "missing.toml")},
        config=named,
    )
    assert settings.num_partitions == 7


def test_what_belongs_to_another_service_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("broker.rack = 'r1'\nreconcile.interval.ms = 1000\nlog.segment.bytes = 4096\n")
    controller = load_settings(
        ControllerSettings, flags=BROKER | {"controller.id": "4"}, environment={}, config=file
    )
    broker = load_settings(BrokerSettings, flags=BROKER, environment={}, config=file)
    assert controller.reconcile_interval_ms == 1000
    assert not hasattr(controller, "log_segment_bytes")
    assert (broker.broker_rack, broker.log_segment_bytes) == ("r1", 4096)


@pytest.mark.parametrize(
    ("flags", "environment", "text", "says"),
    [
        ({"broker.idd": "1"}, {}, "", "unknown setting broker.idd; did you mean broker.id?"),
        (
            {},
            {"LEADLINE_ZOOKEEPER_CONECT": "z:1"},
            "",
            "unknown setting zookeeper.conect; did you mean zookeeper.connect?",
        ),
        ({}, {}, "[open.file]\nmax = 3\n", "did you mean open.files.max?"),
        ({}, {}, "open.files.max = ", "cannot read the settings of"),
        ({}, {}, 'open.files.max = "many"', "open.files.max: "),
        ({"open.files.max": "3"}, {}, "", "open.files.max: "),
        ({"log.level": "loud"}, {}, "", "log.level: "),
        ({}, {"LEADLINE_LISTEN_PORT": "70000"}, "", "listen.port (LEADLINE_LISTEN_PORT): "),
        ({}, {"LEADLINE_LISTEN_PORT": ""}, "", "listen.port (LEADLINE_LISTEN_PORT): "),
        ({"listen.port": "x"}, {"LEADLINE_LISTEN_PORT": "1"}, "", "listen.port: "),
    ],
    ids=[
        "unknown flag",
        "unknown variable",
        "unknown in file",
        "file is not TOML",
        "wrong type in file",
        "below its minimum",
        "not one of its values",
        "above its maximum",
        "empty variable",
        "flag before variable",
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(
    tmp_path: Path, flags: dict[str, str], environment: dict[str, str], text: str, says: str
) -> None:
    file = tmp_path / "leadline.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refusal:
        load_settings(BrokerSettings, flags=BROKER | flags, environment=environment, config=file)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("connect", "wrong"),
    [
        ("zk1:abc", "zk1:abc"),
        ("zk1:2181,zk2:99999", "zk2:99999"),
        ("zk1:2181,", ""),
        ("::1:2181", "::1:2181"),
        ("zk1..example:2181", "zk1..example:2181"),
        ("zk1:2181;zk2:2181/leadline", "zk1:2181;zk2:2181"),
    ],
)
def test_an_address_that_no_connection_could_use_is_refused_at_the_start(
    connect: str, wrong: str
) -> None:
    flags = BROKER | {"zookeeper.connect": connect}
    with pytest.raises(SettingsError, match=r"^zookeeper\.connect: ") as refusal:
        load_settings(BrokerSettings, flags=flags, environment={})
    assert f"{wrong!r} is not host:port" in str(refusal.value)


def test_addresses_with_a_scheme_are_refused_at_the_start() -> None:
    flags = BROKER | {"zookeeper.connect": "http://zk1:2181"}
    with pytest.raises(SettingsError, match=r"^zookeeper\.connect: .*neither a scheme"):
        load_settings(BrokerSettings, flags=flags, environment={})


@pytest.mark.parametrize(
    "connect",
    ["zk1", "zk1:2181, zk2:2181/a/b", "[::1]:2181,[fe80::1%eth0]:2181", "10.0.0.1:1", "zk_1.:2181"],
)
def test_addresses_of_every_kind_are_taken(connect: str) -> None:
    flags = BROKER | {"zookeeper.connect": connect}
    settings = load_settings(BrokerSettings, flags=flags, environment={})
    assert settings.zookeeper_connect == connect


@pytest.mark.parametrize(
    ("stop_ms", "evict_ms", "why"),
    [(4_000, 4_000, "must hold"), (1_000, 5_000, "must hold"), (10_000, 10_199, "at least 2 %")],
)
def test_a_consumer_may_not_be_given_up_before_it_has_stopped(
    stop_ms: int, evict_ms: int, why: str
) -> None:
    limits = {"group.stop.limit.ms": str(stop_ms), "group.evict.limit.ms": str(evict_ms)}
    flags = {"coordinator.id": "1"} | limits
    with pytest.raises(SettingsError, match=why):
        load_settings(CoordinatorSettings, flags=flags, environment={})


def test_no_service_closes_a_connection_that_a_client_still_keeps() -> None:
    """A request could meet the end of its connection, and nobody would know its outcome."""
    least_ms = math.ceil(2 * IDLE_TIMEOUT_S * 1000)
    flags = BROKER | {"connections.max.idle.ms": str(least_ms)}
    settings = load_settings(BrokerSettings, flags=flags, environment={})
    assert settings.connections_max_idle_ms == least_ms
    flags["connections.max.idle.ms"] = str(least_ms - 1)
    with pytest.raises(SettingsError, match=r"connections\.max\.idle\.ms"):
        load_settings(BrokerSettings, flags=flags, environment={})


def test_a_missing_required_setting_is_named() -> None:
    with pytest.raises(SettingsError, match=r"log\.dir is required"):
        load_settings(BrokerSettings, flags={"broker.id": "1"}, environment={})


def test_a_missing_file_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml"):
        load_settings(BrokerSettings, flags=BROKER, environment={}, config=tmp_path / "absent.toml")


def test_variables_of_kubernetes_services_and_of_the_command_are_not_settings() -> None:
    environment = {
        "LEADLINE_BROKER_SERVICE_HOST": "10.0.0.1",
        "LEADLINE_BROKER_SERVICE_PORT": "9092",
        "LEADLINE_BROKER_PORT": "tcp://10.0.0.1:9092",
        "LEADLINE_BROKER_PORT_9092_TCP_ADDR": "10.0.0.1",
        "LEADLINE_BOOTSTRAP": "http://127.0.0.1:1",
        "LEADLINE_CERTIFICATE_FILE": "/none",
        "LEADLINE_TOKEN": "t",
        "LEADLINE_TOKEN_FILE": "/none",
        "LEADLINE_LISTEN_PORT": "8123",
    }
    settings = load_settings(BrokerSettings, flags=BROKER, environment=environment)
    assert settings.listen_port == 8123


def test_settings_do_not_change_once_read() -> None:
    settings = load_settings(BrokerSettings, flags=BROKER, environment={})
    with pytest.raises(ValidationError, match="frozen"):
        settings.broker_id = 2


def test_names_are_unique_and_none_is_the_beginning_of_another() -> None:
    # TOML could not give both a value to `a.b` and one to `a.b.c`.
    names = [row.name for row in settings_table() if row.scope != "topic"]
    assert len(names) == len(set(names))
    for name in names:
        assert not [other for other in names if other.startswith(f"{name}.")]


def test_every_setting_says_what_it_means_and_numbers_of_time_and_size_their_unit() -> None:
    for row in settings_table():
        assert row.meaning, row.name
        if row.name.endswith(".ms"):
            assert row.unit == "ms", row.name
        if row.name.endswith(".bytes"):
            assert row.unit == "bytes", row.name


def test_topic_configs_are_stored_as_strings_in_one_spelling() -> None:
    stored = check_configs(
        "topic",
        {"retention.ms": 1000, "unclean.leader.election.enable": "TRUE", "segment.bytes": "65536"},
    )
    assert stored == {
        "retention.ms": "1000",
        "unclean.leader.election.enable": "true",
        "segment.bytes": "65536",
    }
    assert check_configs("topic", stored) == stored


def test_topic_configs_have_types_and_leave_the_rest_to_the_service() -> None:
    configs = parse_topic_configs({"min.insync.replicas": "1"})
    assert configs == TopicConfigs(min_insync_replicas=1)
    assert configs.retention_ms is None


@pytest.mark.parametrize(
    ("configs", "named", "says"),
    [
        ({"retention.m": "1"}, "retention.m", "did you mean retention.ms?"),
        ({"cleanup.policy": "compact"}, "cleanup.policy", "unknown topic config"),
        ({"retention.ms": "soon"}, "retention.ms", "integer"),
        ({"min.insync.replicas": "0"}, "min.insync.replicas", "greater than or equal to 1"),
        ({"retention.bytes": "-1", "segment.bytes": "12"}, "segment.bytes", "1024"),
    ],
)
def test_a_wrong_topic_config_is_a_policy_violation_that_names_it(
    configs: dict[str, object], named: str, says: str
) -> None:
    with pytest.raises(PolicyViolation) as refusal:
        check_configs("topic", configs)
    assert refusal.value.details == {"config": named}
    assert says in refusal.value.message


def test_the_pages_of_settings_and_errors_are_those_of_the_code() -> None:
    result = subprocess.run(
        [sys.executable, "scripts/generate_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_table_of_the_file_has_the_settings_of_one_kind_of_service(tmp_path: Path) -> None:
    file = tmp_path / "leadline.toml"
    file.write_text(
        "listen.port = 1\nlog.level = 'debug'\n"
        "[broker]\nid = 4\nlisten.port = 9092\nlog.dir = '/data'\n"
        "[controller]\nid = 2\nlisten.port = 9093\n"
    )
    broker = load_settings(BrokerSettings, flags={}, environment={}, config=file)
    assert (broker.broker_id, broker.listen_port, broker.log_dir) == (4, 9092, "/data")
    controller = load_settings(ControllerSettings, flags={}, environment={}, config=file)
    assert (controller.controller_id, controller.listen_port) == (2, 9093)
    flags = {"coordinator.id": "3"}
    coordinator = load_settings(CoordinatorSettings, flags=flags, environment={}, config=file)
    assert (coordinator.listen_port, coordinator.log_level) == (1, "debug")


def test_an_unknown_setting_in_the_table_of_another_service_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "leadline.toml"
    file.write_text("[controller]\nlisten.prot = 1\n")
    with pytest.raises(SettingsError, match=r"listen\.prot in \[controller\].*listen\.port"):
        load_settings(BrokerSettings, flags=BROKER, environment={}, config=file)

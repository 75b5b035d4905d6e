"""What `leadline up` starts, and that a second time it is the same cluster."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from leadline_cli.cluster_file import (
    ClusterFile,
    DamagedClusterFile,
    Service,
    read_cluster_file,
)
from leadline_cli.cluster_layout import (
    ClusterLayout,
    ClusterOptions,
    PortTaken,
    lay_out_cluster,
)
from leadline_common.tcp_ports import LOOPBACK, ReservedPorts


def as_file(layout: ClusterLayout) -> ClusterFile:
    return ClusterFile(
        "id",
        layout.zookeeper,
        tuple(one.running_as(1) for one in layout.controllers),
        tuple(one.running_as(2) for one in layout.brokers),
        tuple(one.running_as(4) for one in layout.coordinators),
        zookeeper_servers=tuple(one.running_as(3) for one in layout.zookeeper_servers),
    )


def laid_out(options: ClusterOptions, before: ClusterFile | None = None) -> ClusterLayout:
    reserved = ReservedPorts()
    try:
        return lay_out_cluster(options, before, reserved)
    finally:
        reserved.release()


def flags(argv: tuple[str, ...]) -> dict[str, str]:
    pairs = [argv[at + 1] for at, word in enumerate(argv) if word == "--set"]
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def test_every_command_line_says_everything_port_included(tmp_path: Path) -> None:
    asked = ClusterOptions(
        tmp_path, 2, 1, coordinators=1, settings={"log.level": "debug"}, racks=["a", "b"]
    )
    made = laid_out(asked)
    second = flags(made.brokers[1].argv)
    assert second["broker.id"] == "2"
    assert second["broker.rack"] == "b"
    assert second["log.level"] == "debug"
    assert second["zookeeper.connect"] == made.zookeeper
    assert made.brokers[1].url.endswith(":" + second["listen.port"])
    assert second["log.dir"] == made.brokers[1].log_dir
    assert flags(made.controllers[0].argv)["controller.id"] == "1"
    assert flags(made.coordinators[0].argv)["coordinator.id"] == "1"


def test_all_ports_differ(tmp_path: Path) -> None:
    made = laid_out(ClusterOptions(tmp_path, 5, 3, zookeeper_members=3, coordinators=2))
    urls = [one.url for one in (*made.services, *made.zookeeper_servers)]
    assert len(set(urls)) == 13
    assert len(made.zookeeper.split(",")) == 3


def test_a_second_time_ids_ports_and_racks_stay(tmp_path: Path) -> None:
    first = laid_out(ClusterOptions(tmp_path, 2, 1, coordinators=3, racks=["a", "b"]))
    again = laid_out(ClusterOptions(tmp_path), as_file(first))
    assert again == first


def test_a_secure_cluster_stays_secure_until_told_otherwise(tmp_path: Path) -> None:
    first = laid_out(ClusterOptions(tmp_path, 1, 1, coordinators=1, secure=True))
    assert {one.url.partition(":")[0] for one in first.services} == {"https"}
    files = {flags(one.argv)["listen.tls.certificate.file"] for one in first.services}
    assert len(files) == 3
    again = laid_out(ClusterOptions(tmp_path), as_file(first))
    assert again == first
    plain = laid_out(ClusterOptions(tmp_path, secure=False), as_file(first))
    assert {one.url.partition(":")[0] for one in plain.services} == {"http"}
    assert "tls" not in str([flags(one.argv).keys() for one in plain.services])


def test_a_cluster_is_not_secure_unless_told_so(tmp_path: Path) -> None:
    made = laid_out(ClusterOptions(tmp_path, 1, 1, coordinators=1))
    assert {one.url.partition(":")[0] for one in made.services} == {"http"}
    assert "tls" not in str([flags(one.argv).keys() for one in made.services])


def test_more_brokers_join_those_that_were_there(tmp_path: Path) -> None:
    first = laid_out(ClusterOptions(tmp_path, 2, 1))
    grown = laid_out(ClusterOptions(tmp_path, brokers=4), as_file(first))
    assert grown.brokers[:2] == first.brokers
    assert [one.id for one in grown.brokers] == [1, 2, 3, 4]


def test_a_port_that_is_taken_is_given_up_and_the_data_is_not(tmp_path: Path) -> None:
    first = laid_out(ClusterOptions(tmp_path, 1, 1))
    with ExitStack() as others:
        for one in (*first.services, *first.zookeeper_servers):
            port = int(one.url.rpartition(":")[2])
            others.enter_context(socket.create_server((LOOPBACK, port)))
        again = laid_out(ClusterOptions(tmp_path), as_file(first))
    assert again.brokers[0].url != first.brokers[0].url
    assert again.brokers[0].log_dir == first.brokers[0].log_dir
    assert again.zookeeper != first.zookeeper
    assert str(tmp_path / "zookeeper-1") in again.zookeeper_servers[0].argv


@pytest.mark.parametrize("members", [1, 3])
def test_a_moved_directory_has_its_own_zookeeper(tmp_path: Path, members: int) -> None:
    first = laid_out(ClusterOptions(tmp_path / "before", 1, 1, zookeeper_members=members))
    moved = laid_out(ClusterOptions(tmp_path / "after"), as_file(first))
    here, there = str(tmp_path / "before"), str(tmp_path / "after")
    for old, new in zip(first.zookeeper_servers, moved.zookeeper_servers, strict=True):
        assert new.argv == tuple(word.replace(here, there) for word in old.argv)
        assert new.argv != old.argv


def test_somebody_elses_zookeeper_is_not_started_and_remembered(tmp_path: Path) -> None:
    first = laid_out(ClusterOptions(tmp_path, 1, 1, zookeeper="zk:2181/chroot"))
    again = laid_out(ClusterOptions(tmp_path), as_file(first))
    assert first.zookeeper_servers == again.zookeeper_servers == ()
    assert again.zookeeper == "zk:2181/chroot"


def test_cluster_json_has_the_agreed_shape_and_is_read_back(tmp_path: Path) -> None:
    broker = Service(1, "http://127.0.0.1:1", 42, ("x", "--set", "a=b"), "/logs", None)
    document = ClusterFile("id", "127.0.0.1:2181", (), (broker,))
    document.write(tmp_path)
    stored = json.loads((tmp_path / "cluster.json").read_text())
    assert stored["brokers"] == [
        {
            "id": 1,
            "url": "http://127.0.0.1:1",
            "pid": 42,
            "argv": ["x", "--set", "a=b"],
            "log_dir": "/logs",
        }
    ]
    assert stored["coordinators"] == []
    assert read_cluster_file(tmp_path) == document
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


@pytest.mark.parametrize(
    "damage",
    [
        *({"id": "x"}, {"id": True}, {"id": -1}, {"url": 5}, {"url": "http://["}, {"pid": "a"}),
        *({"url": "http://h:99999"}, {"argv": [1]}, {"argv": None}, {"log_dir": 1}),
    ],
)
def test_a_cluster_json_with_values_of_another_type_is_damaged(
    tmp_path: Path, damage: dict[str, Any]
) -> None:
    ClusterFile("id", "127.0.0.1:2181", (), (Service(1, "http://h:1", 42, ()),)).write(tmp_path)
    path = tmp_path / "cluster.json"
    document = json.loads(path.read_text())
    document["brokers"][0] |= damage
    path.write_text(json.dumps(document))
    with pytest.raises(DamagedClusterFile, match="name brokers with --bootstrap"):
        read_cluster_file(tmp_path)


def test_each_controller_keeps_its_history_in_the_directory_unless_told(tmp_path: Path) -> None:
    first, second = laid_out(ClusterOptions(tmp_path, 1, 2)).controllers
    assert flags(first.argv)["data.dir"] == flags(second.argv)["data.dir"] == str(tmp_path)
    url = "postgresql+psycopg://leadline@127.0.0.1/leadline"
    told = laid_out(ClusterOptions(tmp_path, 1, 1, settings={"history.url": url}))
    assert flags(told.controllers[0].argv)["history.url"] == url


def test_defect_22_fixed_ports_follow_from_kind_and_id(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as probe:
        base = 20_000 + probe.getsockname()[1] % 10_000
    made = laid_out(ClusterOptions(tmp_path, 2, 1, coordinators=1, port_base=base))
    ports = {one.name: int(one.url.rpartition(":")[2]) for one in made.services}
    assert ports == {
        "controller-1": base + 101,
        "broker-1": base + 1,
        "broker-2": base + 2,
        "coordinator-1": base + 201,
    }
    assert made.zookeeper == f"{LOOPBACK}:{base}"
    moved = laid_out(ClusterOptions(tmp_path, port_base=base + 1_000), as_file(made))
    assert moved.brokers[0].url.endswith(f":{base + 1_001}")
    assert moved.brokers[0].log_dir == made.brokers[0].log_dir
    with (
        socket.create_server((LOOPBACK, base + 2)),
        pytest.raises(PortTaken, match=f"port {base + 2} of broker-2 is in use"),
    ):
        laid_out(ClusterOptions(tmp_path / "other", 2, 1, port_base=base))

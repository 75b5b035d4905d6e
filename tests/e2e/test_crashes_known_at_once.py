"""Killed services under `leadline up`: others take over without waiting for session timeouts.

Sessions time out after a minute here, and every wait ends long before that.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from leadline_client import Client, NewTopic, Producer
from tests.support.freezing import freeze
from tests.support.services.up import Up, command_line, running, until

SESSION_TIMEOUT_S = 60
DEADLINE_S = 20.0
TOPIC = "orders"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    timeout = f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_S * 1000}"
    words = ("up", "--restart", "--set", timeout)
    with running(tmp_path_factory.mktemp("cluster"), *words) as cluster:
        with client_of(cluster) as client:
            client.create_topic(NewTopic(TOPIC, 6, 3))
        yield cluster


def urls(up: Up) -> list[str]:
    return [row["url"] for row in up.file()["brokers"]]


def client_of(up: Up) -> Client:
    return Client(urls(up))


def pid_of(up: Up, kind: str, number: int) -> int:
    return next(int(row["pid"]) for row in up.file()[kind] if row["id"] == number)


def kill(up: Up, kind: str, number: int) -> None:
    """Kill a service, and wait until `up` has started it again."""
    pid = pid_of(up, kind, number)
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid_of(up, kind, number) != pid, f"{kind} {number} is restarted", DEADLINE_S)


def leaders(up: Up) -> list[tuple[int, int]]:
    with client_of(up) as client:
        return [(row.leader, row.leader_epoch) for row in client.describe(TOPIC).partitions]


def test_a_killed_leader_is_replaced(up: Up) -> None:
    before = leaders(up)
    victim = before[0][0]
    with Producer(urls(up)) as producer:
        os.kill(pid_of(up, "brokers", victim), signal.SIGKILL)
        futures = [producer.send(TOPIC, b"%d" % number, partition=number) for number in range(6)]
        for future in futures:
            future.result(DEADLINE_S)

    def replaced() -> bool:
        now = leaders(up)
        led = [(old, new) for old, new in zip(before, now, strict=True) if old[0] == victim]
        return all(new[1] > old[1] and new[0] >= 0 for old, new in led)

    until(replaced, "every partition of the killed leader has a newer leader epoch", DEADLINE_S)
    with client_of(up) as client:
        until(lambda: len(client.brokers()) == len(urls(up)), "all brokers are alive", DEADLINE_S)


@pytest.mark.parametrize("kind", ["controllers", "coordinators"])
def test_a_killed_active_service_is_replaced(up: Up, kind: str) -> None:
    with client_of(up) as client:
        number = active_of(client, kind)
        kill(up, kind, number)
        until(lambda: active_of(client, kind) != number, f"another of {kind} leads", DEADLINE_S)
        client.create_topic(NewTopic(f"after-{kind}", 3, 3))


def active_of(client: Client, kind: str) -> int:
    """Return the id of the active controller or coordinator, as the brokers know it."""
    if kind == "controllers":
        found = client.controller()
        return found.id if found is not None else -1
    return int(client.find_coordinator()["coordinator"]["id"])


def test_a_frozen_broker_keeps_its_session(up: Up) -> None:
    before = leaders(up)
    victim = before[0][0]
    pid = pid_of(up, "brokers", victim)
    freeze(pid)
    file = up.data_dir / "sessions" / f"broker-{victim}"
    stored = file.read_bytes()
    try:
        command = command_line("close-session", str(file))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        assert "has not ended" in done.stderr
        assert file.read_bytes() == stored
        assert leaders(up) == before
    finally:
        os.kill(pid, signal.SIGCONT)
    assert pid_of(up, "brokers", victim) == pid

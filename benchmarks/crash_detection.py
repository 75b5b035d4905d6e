"""How soon after a kill -9 a cluster works again, with the default session timeout.

Run `python benchmarks/crash_detection.py [--kills 50]`. `leadline up --restart` runs three brokers,
two controllers and two coordinators. In turn, the leader of a partition and the active controller
are killed. Printed are the times from the kill to the first record that is acknowledged with
acks=all by a new leader, and to the first topic that a new controller creates, as median, p99 and
maximum. As a ceiling beside them: the same request on the healthy cluster, right before each kill.

Goals: acknowledgement p50 at most 300 ms and p99 600 ms; controller 500 ms.

With `--freezes 50`, as many processes are frozen instead: a leader, the active controller and the
active coordinator in turn. Each stays frozen for two seconds, while the command of a service
manager's stop hook is asked to close its session, and another broker is killed. The session, whose
timeout is 30 s here, must outlive that. The exit code is 1 if one did not.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from leadline_client import Client, NewTopic, OutcomeUnknown, Producer

# `leadline up` as the tests run it.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.services.up import Up, command_line, running, until

TOPIC = "orders"
DEADLINE_S = 60.0
FREEZE_S = 2.0
LONG_SESSIONS = ("--set", "zookeeper.session.timeout.ms=30000")
"""So long that no process gives its role up because it was frozen."""


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--freezes", type=int, default=0)
    arguments = parser.parse_args()
    words = ("up", "--restart", *(LONG_SESSIONS if arguments.freezes else ()))
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory) / "cluster", *words) as up,
        Client(urls(up)) as client,
    ):
        client.create_topic(NewTopic(TOPIC, 6, 3))
        if arguments.freezes:
            sys.exit(freeze_all(up, client, arguments.freezes))
        kill_all(up, client, arguments.kills)


def kill_all(up: Up, client: Client, kills: int) -> None:
    """Kill leaders and controllers, and print how long it took."""
    rows: dict[str, list[float]] = {}
    for number in range(kills):
        rows.setdefault("record, healthy", []).append(record_ms(up, kill=False))
        rows.setdefault("record, leader killed", []).append(record_ms(up, kill=True))
        until_whole(up, client)
        healthy, killed = f"healthy-{number}", f"killed-{number}"
        rows.setdefault("topic, healthy", []).append(topic_ms(up, client, healthy, kill=False))
        rows.setdefault("topic, controller killed", []).append(
            topic_ms(up, client, killed, kill=True)
        )
        until_whole(up, client)
    print(f"load average {os.getloadavg()[0]:.1f}; milliseconds over {kills} rounds")
    for name, times in rows.items():
        print(f"{name:26} {summary(times)}")


def freeze_all(up: Up, client: Client, freezes: int) -> int:
    """Freeze processes in turn; return 1 if the session of one was closed meanwhile."""
    lost = [number for number in range(freezes) if not outlives_freeze(up, client, number)]
    print(f"load average {os.getloadavg()[0]:.1f}; {freezes} frozen, {len(lost)} sessions closed")
    return int(bool(lost))


def outlives_freeze(up: Up, client: Client, number: int) -> bool:
    """Freeze a process for a while; tell whether it has the same session and role afterwards."""
    until_whole(up, client)
    kind = ("broker", "controller", "coordinator")[number % 3]
    before = role(client, kind)
    service, _ = before
    other = next(row["id"] for row in up.file()["brokers"] if row["id"] != service)
    pid = pid_of(up, f"{kind}s", service)
    os.kill(pid, signal.SIGSTOP)
    try:
        end(up, "brokers", other)
        file = up.data_dir / "sessions" / f"{kind}-{service}"
        command = command_line("close-session", str(file))
        asked = subprocess.run(command, capture_output=True, check=False)
        time.sleep(FREEZE_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    until_whole(up, client)
    kept = asked.returncode == 1 and role(client, kind) == before
    if not kept:
        print(f"{kind} {service}: {before}, then {role(client, kind)}; {asked.stderr.decode()}")
    return kept


def role(client: Client, kind: str) -> tuple[int, int]:
    """Return the id of a leader or active service, and what another session would change."""
    if kind == "broker":
        leader = client.describe(TOPIC).partitions[0].leader
        return leader, next(row.incarnation for row in client.brokers() if row.id == leader)
    if kind == "controller":
        controller = client.controller()
        assert controller is not None
        return controller.id, controller.epoch
    coordinator = client.find_coordinator()["coordinator"]
    return coordinator["id"], coordinator["epoch"]


def urls(up: Up) -> list[str]:
    """Return the addresses of all brokers."""
    return [row["url"] for row in up.file()["brokers"]]


def record_ms(up: Up, *, kill: bool) -> float:
    """Return how long a record takes to be acknowledged, from the kill of its leader on."""
    with Client(urls(up)) as client, Producer(urls(up)) as producer:
        leader = client.describe(TOPIC).partitions[0].leader
        producer.send(TOPIC, b"before", partition=0).result(DEADLINE_S)
        begun = time.monotonic()
        if kill:
            end(up, "brokers", leader)
        producer.send(TOPIC, b"after", partition=0).result(DEADLINE_S)
        return (time.monotonic() - begun) * 1000


def topic_ms(up: Up, client: Client, name: str, *, kill: bool) -> float:
    """Return how long the creation of a topic takes, from the kill of the active controller on."""
    active = client.controller()
    assert active is not None
    begun = time.monotonic()
    if kill:
        end(up, "controllers", active.id)
    attempt = 0
    while True:
        try:
            client.create_topic(NewTopic(f"{name}-{attempt}", 3, 3))
        except OutcomeUnknown:  # The killed controller had the request.
            attempt += 1
        else:
            return (time.monotonic() - begun) * 1000


def end(up: Up, kind: str, number: int) -> None:
    """Kill a service."""
    os.kill(pid_of(up, kind, number), signal.SIGKILL)


def pid_of(up: Up, kind: str, number: int) -> int:
    """Return the process of a service."""
    return next(int(row["pid"]) for row in up.file()[kind] if row["id"] == number)


def until_whole(up: Up, client: Client) -> None:
    """Wait until every service runs again, and every replica is in sync."""

    def whole() -> bool:
        topic = client.describe(TOPIC)
        rows = up.rows()
        running_all = all(Path(f"/proc/{row['pid']}").exists() for row in rows)
        return running_all and all(len(row.isr) == 3 for row in topic.partitions)

    until(whole, "every replica is in sync", DEADLINE_S)


def summary(times: Sequence[float]) -> str:
    """Return median, p99 and maximum."""
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return f"p50 {statistics.median(times):7.0f}  p99 {p99:7.0f}  max {ordered[-1]:7.0f}"


if __name__ == "__main__":
    main()

"""How soon after a kill -9 a cluster works again, with the default session timeout.

Run `python benchmarks/crash_detection.py [--kills 50]`. `leadline up --restart` runs three brokers,
two controllers and two coordinators. In turn, the leader of a partition and the active controller
are killed. Printed are the times from the kill to the first record that is acknowledged with
acks=all by a new leader, and to the first topic that a new controller creates, as median, p99 and
maximum. As a ceiling beside them: the same request on the healthy cluster, right before each kill.

Goals: acknowledgement p50 at most 300 ms and p99 600 ms; controller 500 ms.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from leadline_client import Client, NewTopic, OutcomeUnknown, Producer

# `leadline up` as the tests run it.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.services.up import Up, running, until

TOPIC = "orders"
DEADLINE_S = 60.0


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    kills = parser.parse_args().kills
    rows: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory) / "cluster", "up", "--restart") as up,
        Client(urls(up)) as client,
    ):
        client.create_topic(NewTopic(TOPIC, 6, 3))
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
    pid = next(row["pid"] for row in up.file()[kind] if row["id"] == number)
    os.kill(pid, signal.SIGKILL)


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

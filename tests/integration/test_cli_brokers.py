"""`leadline brokers`, `failed-brokers` and `plan` where a broker is gone for good."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.services.up import Up, running, until

SETTINGS = {"zookeeper.session.timeout.ms": 2_000, "failed.broker.interval.ms": 200}
UP = (
    *("up", "--brokers", "4", "--controllers", "1", "--coordinators", "0"),
    *(word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")),
)


def state_of(up: Up, broker: int) -> str | None:
    rows = up.ask("failed-brokers")["brokers"]
    return next((row["state"] for row in rows if row["id"] == broker), None)


def leaders(up: Up) -> list[int]:
    return [row["leader"] for row in up.ask("topics", "describe", "t")["partitions"]]


@pytest.mark.slow
def test_defect_12_and_defect_17_a_broker_that_is_gone_for_good(tmp_path: Path) -> None:
    with running(tmp_path, *UP) as up:
        placed = ("--assignment", "1:2:4,2:4:1,4:1:2")
        assert up.run("topics", "create", "t", *placed).returncode == 0
        assert up.run("failed-brokers").stdout == "Brokers that are down: none\n"
        os.kill(up.document["brokers"][3]["pid"], signal.SIGKILL)
        until(lambda: state_of(up, 4) == "healed", "its replicas are rebuilt")

        listed = up.ask("brokers")
        assert [row["id"] for row in listed["brokers"]] == [1, 2, 3]
        assert listed["down"] == [{"id": 4, "state": "healed", "replicas": 0}]
        assert "down: healed" in up.run("brokers").stdout
        assert "healed" in up.run("failed-brokers").stdout
        assert "down, and given nothing: brokers 4" in up.run("plan", "balance").stdout
        assert "leadline brokers forget" in up.run("doctor", "--json").stdout
        refused = up.run("brokers", "forget", "1", "--json")
        assert (refused.returncode, json.loads(refused.stderr)["error_code"]) == (1, 40984)
        assert up.run("brokers", "forget", "4").stdout == "broker 4 is forgotten\n"
        assert up.ask("brokers")["down"] == up.ask("failed-brokers")["brokers"] == []

        before = leaders(up)
        drained = up.run("brokers", "drain", "3", "--watch")
        assert drained.returncode == 1
        assert "add a broker" in drained.stderr
        assert up.run("brokers", "drain", "3", "--dry-run").stderr == drained.stderr
        assert (leaders(up), up.ask("tasks", "list")["tasks"][1:]) == (before, [])

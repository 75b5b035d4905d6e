"""`leadline reassign` and `leadline tasks` on a real cluster of two brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.services.up import running

UP = ("up", "--brokers", "2", "--controllers", "1", "--coordinators", "0")


@pytest.mark.slow
def test_defect_15_a_task_moves_at_its_own_rate_beside_a_slower_one(tmp_path: Path) -> None:
    """The slow one would take an hour, and the fast one with it."""
    lines = "".join(f"{number:0200}\n" for number in range(500))
    with running(tmp_path, *UP) as up:
        for topic in ("slow", "fast"):
            assert up.run("topics", "create", topic, "--assignment", "1").returncode == 0
            for _ in range(3):  # batches are never split
                up.ask("produce", topic, "-", stdin=lines)
        slow = up.ask("reassign", "start", "--partition", "slow-0=2", "--throttle", "50")
        fast = up.ask("reassign", "start", "--partition", "fast-0=2", "--throttle", "100000000")

        ended = up.run("tasks", "status", fast["id"], "--watch")
        assert ended.returncode == 0, ended.stderr
        assert f"task {fast['id']}: done, 1 of 1 partitions done" in ended.stderr
        left = up.ask("tasks", "status", slow["id"])
        assert (left["state"], left["allotted_bytes_per_s"], left["bound_by"]) == (
            "running",
            50,
            "own",
        )
        assert "have caught up" in left["waits_for"]
        ceiling = "reassignment.throttle.bytes.per.s"
        assert up.run("configs", "set", f"{ceiling}=20").returncode == 0
        assert "limit 20 B/s: cluster ceiling" in up.run("tasks", "status", slow["id"]).stdout
        up.run("configs", "unset", ceiling)
        assert up.run("tasks", "throttle", slow["id"], "none").returncode == 0
        assert up.run("tasks", "status", slow["id"], "--watch").returncode == 0


def test_partitions_are_moved_and_followed(tmp_path: Path) -> None:
    rows = [{"topic": "t", "partition": 1, "replicas": [2]}]
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    with running(tmp_path / "data", *UP) as up:
        assert up.run("topics", "create", "t", "--assignment", "1,1").returncode == 0
        lines = "".join(f"line {number}\n" for number in range(500))
        up.ask("produce", "t", "-", "--partition", "0", stdin=lines)
        moved = up.ask("reassign", "start", "--partition", "t-0=2", "--watch")
        assert (moved["state"], moved["partitions"]["done"]) == ("done", 1)
        assert up.run("consume", "t", "--partition", "0").stdout == lines
        task = up.ask("reassign", "start", str(file), "--throttle", "1000000")
        followed = up.run("tasks", "status", task["id"], "--watch")
        assert (followed.returncode, "1 of 1 partitions done" in followed.stdout) == (0, True)
        found = up.ask("topics", "describe", "t")["partitions"]
        assert [row["replicas"] for row in found] == [[2], [2]]
        late = up.run("reassign", "throttle", task["id"], "5", "--json")
        assert (late.returncode, json.loads(late.stderr)["error_code"]) == (1, 40981)

"""`leadline reassign` and `leadline tasks` on a real cluster of two brokers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.services.up import running

UP = ("up", "--brokers", "2", "--controllers", "1", "--coordinators", "0")


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

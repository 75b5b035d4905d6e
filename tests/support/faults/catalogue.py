"""The named fault scenarios S1 to S31, and which tests run each.

A test runs a scenario if it is marked `@pytest.mark.scenario("S17")`, by itself or with its module.
The marks are read from the source, so that nothing is imported and nothing can be left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

SCENARIOS: Final[Mapping[str, str]] = {
    "S1": "leader killed -9, restarted after its session expired",
    "S2": "leader killed -9, restarted at once, before its session expires",
    "S3": "follower killed -9 while it appends",
    "S4": "leader frozen for 0.5, 1, 2 and 5 sessions",
    "S5": "follower frozen until it is out of the ISR",
    "S6": "active controller killed: idle, and in the middle of a failover of 200 partitions",
    "S7": "active controller frozen past its session, with a failover under way",
    "S8": "controllers killed one after another, a second apart, until none is left",
    "S9": "of three ZooKeeper servers a follower, the leader, then the quorum killed",
    "S10": "one process cut off from ZooKeeper only: a leader, a follower, the active controller",
    "S11": "leader cut off from all other brokers, but not from ZooKeeper",
    "S12": "leader cut off from one follower, in both directions and in each; a ring of such cuts",
    "S13": "one broker isolated from everybody, for long and again and again",
    "S14": "follower behind a slow link: 256 kbit/s, 300 ms",
    "S15": "fetch answers and orders of the controller delayed, lost, repeated and reordered",
    "S16": "power cut of a follower, a leader, two and all brokers; then a wiped disk",
    "S17": "disk full on a leader, on a follower; freed later",
    "S18": "fsync fails on a leader",
    "S19": "torn or garbled log tail",
    "S20": "flipped byte in a closed segment, an index, the epoch file, the high watermark file",
    "S21": "wall clock of one broker: steps of an hour and of ten minutes, drift of 1 % a second",
    "S22": "restart storm: a random broker killed and restarted every two seconds",
    "S23": "rolling clean restart of brokers, controllers and coordinators",
    "S24": "processes killed in the middle of moving twelve partitions, then a cancellation",
    "S25": "topics created, deleted and recreated, five a second, while a broker is down",
    "S26": "active controller killed before and after each write of added partitions",
    "S27": "all in-sync replicas down and a stale one up; unclean election by request and setting",
    "S28": "groups: member frozen past its limit, coordinator killed or frozen, late commits",
    "S29": "client that knows one broker, through five failovers, the leader cut from ZooKeeper",
    "S30": "random mix: new faults every window, one window in four quiet, groups included",
    "S31": "disk of a leader, of a follower and of a stopping broker hangs: no answer, no error",
}

GATE: Final = ("S1", "S2", "S3", "S6", "S7", "S10", "S11", "S15", "S16", "S17", "S27", "S28")
"""What `make gate` runs: kills, a freeze, cuts, delays, a power cut, a full disk, an election."""

TESTS: Final = Path(__file__).resolve().parents[2]
BLACK_BOX: Final = TESTS / "e2e"
_MARK: Final = "scenario"


def marked_tests(root: Path = TESTS) -> dict[str, list[str]]:
    """Return the node ids (`file::test`) below a folder that are marked, by scenario."""
    found: dict[str, list[str]] = {}
    for file in sorted(root.rglob("test_*.py")):
        for number, test in _marked(ast.parse(file.read_text(encoding="utf-8"))):
            place = file.relative_to(TESTS.parent if file.is_relative_to(TESTS) else root)
            found.setdefault(number, []).append(f"{place}::{test}" if test else str(place))
    return found


def listing() -> str:
    """Return all scenarios with a line each."""
    return "\n".join(f"{number:4} {fault}" for number, fault in SCENARIOS.items())


def _marked(module: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((number, statement.name) for number in _numbers(statement.decorator_list))
        elif isinstance(statement, ast.Assign) and _assigns_marks(statement):
            yield from ((number, "") for number in _numbers([statement.value]))


def _assigns_marks(statement: ast.Assign) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "pytestmark" for one in statement.targets)


def _numbers(expressions: Iterable[ast.expr]) -> Iterator[str]:
    calls = (node for one in expressions for node in ast.walk(one) if isinstance(node, ast.Call))
    for call in calls:
        if ast.unparse(call.func) == f"pytest.mark.{_MARK}":
            texts = (one.value for one in call.args if isinstance(one, ast.Constant))
            yield from (text for text in texts if isinstance(text, str))

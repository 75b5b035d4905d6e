"""The figures of a recorded history, found another way: every millisecond is painted, and counted.

Entries are replayed one after another onto strips of one byte for each millisecond and partition
(or broker); no spans are cut, merged or joined. Slow, plain, and good for minutes of history.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

MIN_INSYNC = 2
_NO_LEADER, _BELOW, _MISSING = 1, 2, 4
_FLAGS = {"no_leader": _NO_LEADER, "below_min_isr": _BELOW, "under_replicated": _MISSING}
_UP, _FAILED, _PLANNED = 1, 2, 3


class _Partition:
    """One partition as it is replayed, and its strip."""

    def __init__(self, length: int) -> None:
        self.strip: list[int | None] = [None] * length
        self.leader, self.isr = -1, list[int]()
        self.replicas, self.adding = list[int](), list[int]()
        self.floor = 0
        self.led = False

    def paint(self, begin: int) -> None:
        """Fill the strip with the state from here on; what comes later paints over it."""
        self.strip[begin:] = [self.wrong()] * (len(self.strip) - begin)

    def wrong(self) -> int | None:
        if not self.led:
            return None
        settled = [broker for broker in self.replicas if broker not in self.adding]
        wrong = 0 if self.leader >= 0 else _NO_LEADER | _MISSING
        if self.leader >= 0 and len(self.isr) < min(self.floor or MIN_INSYNC, len(settled)):
            wrong |= _BELOW
        return wrong | (_MISSING if set(settled) - set(self.isr) else 0)


class _Replay:
    """All that is painted and counted."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.since = entries[0]["time"]
        self.length = entries[-1]["time"] - self.since
        self.partitions: dict[tuple[str, int], _Partition] = defaultdict(
            lambda: _Partition(self.length)
        )
        self.brokers: dict[int, list[int]] = {}
        self.up: dict[int, bool] = {}
        self.planned: set[int] = set()
        self.leaders: Counter[str] = Counter()
        self.shrinks: Counter[str] = Counter()
        self.expansions: Counter[str] = Counter()
        self.decisions: list[int] = []
        self.terms = 0
        for entry in entries:
            self.take(entry)

    def take(self, entry: dict[str, Any]) -> None:
        kind, after, at = entry["kind"], entry["after"] or {}, entry["time"] - self.since
        topic = entry["resource"].get("topic")
        if kind == "topic_created":
            floor = int(after["configs"].get("min.insync.replicas", 0))
            for number, replicas in after["assignment"].items():
                known = self.partitions[topic, int(number)]
                known.replicas, known.floor = replicas, floor
        if kind == "reassignment_step":
            for number, row in after.items():
                known = self.partitions[topic, int(number)]
                known.replicas, known.adding = row["replicas"], row["adding"]
                known.paint(at)
        for change in entry["changes"]:
            self.change(entry, change, at)
        self.follow_brokers(entry, at)
        self.terms += kind == "controller_elected"

    def change(self, entry: dict[str, Any], change: dict[str, Any], at: int) -> None:
        known = self.partitions[change["topic"], change["partition"]]
        before, after = change["before"], change["after"]
        known.leader, known.isr, known.led = after["leader"], after["isr"], True
        known.paint(at)
        if before is None:
            return
        cause = _cause(entry["kind"], change)
        if before["leader"] != after["leader"]:
            self.leaders[cause] += 1
            noticed = (entry["after"] or {}).get("noticed_at")
            if noticed is not None and after["leader"] >= 0:
                self.decisions.append(max(0, entry["time"] - noticed))
        came = set(after["isr"]) - set(before["isr"])
        if set(before["isr"]) - set(after["isr"]):
            self.shrinks[_shrink(entry["kind"], change["reason"])] += 1
        if came and change["reason"] == "unclean":
            self.expansions["unclean"] += 1
        elif came:
            self.expansions["reassignment" if came & set(known.adding) else "caught_up"] += 1

    def follow_brokers(self, entry: dict[str, Any], at: int) -> None:
        kind, after = entry["kind"], entry["after"] or {}
        if kind == "controlled_shutdown":
            self.planned.add(int(entry["actor"].removeprefix("broker-")))
        if entry["resource"].get("kind") == "drain":
            self.planned.add(after["details"]["broker"])
        if kind == "brokers_changed":
            for broker in {*after["brokers"], *self.up}:
                self.see(broker, broker in after["brokers"], at)
        if kind == "broker_change" and entry["reason"].startswith("failed"):
            for broker in json.loads(entry["reason"].split(";")[0].removeprefix("failed ")):
                self.see(broker, False, at)

    def see(self, broker: int, is_up: bool, at: int) -> None:
        if self.up.get(broker) == is_up:
            return
        self.up[broker] = is_up
        strip = self.brokers.setdefault(broker, [0] * self.length)
        state = _UP if is_up else _PLANNED if broker in self.planned else _FAILED
        if is_up:
            self.planned.discard(broker)
        strip[at:] = [state] * (self.length - at)


def _cause(kind: str, change: dict[str, Any]) -> str:
    if change["after"]["leader"] < 0:
        return "lost"
    if change["reason"] in {"unclean", "preferred"}:
        return str(change["reason"])
    named = {"reassignment_step": "reassignment", "controlled_shutdown": "controlled_shutdown"}
    named["drain"] = "drain"
    return named.get(kind, "recovery" if change["before"]["leader"] < 0 else "failure")


def _shrink(kind: str, reason: str) -> str:
    if reason in {"unclean", "lagging"}:
        return reason
    named = {"reassignment_step": "reassignment", "controlled_shutdown": "controlled_shutdown"}
    return named.get(kind, "failure")


def figures(path: Path) -> dict[str, Any]:
    """Return what the summary of a history should have in these members."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    replay = _Replay([entry for entry in entries if entry["outcome"] == "done"])
    strips = [one.strip for one in replay.partitions.values() if one.led]
    observed = sum(value is not None for strip in strips for value in strip)
    bad = {name: _bad(strips, flag) for name, flag in _FLAGS.items()}
    leaders = replay.leaders
    planned = ("controlled_shutdown", "drain", "reassignment", "preferred")
    names = ("failure", "unclean", "recovery", *planned, "lost")
    return {
        "partitions": {
            "count": len(strips),
            "observed_partition_ms": observed,
            "availability": 1 - bad["no_leader"]["partition_ms"] / observed,
            **bad,
        },
        "leadership": {
            "changes": leaders.total() - leaders["lost"],
            "planned": sum(leaders[name] for name in planned),
            "by_cause": {name: leaders[name] for name in names},
        },
        "elections": _elections(sorted(replay.decisions)),
        "isr": {
            "shrinks": _counts(
                replay.shrinks, "failure lagging controlled_shutdown unclean reassignment"
            ),
            "expansions": _counts(replay.expansions, "caught_up reassignment unclean"),
        },
        "brokers": _brokers(replay.brokers, replay.since),
    }


def _counts(found: Counter[str], names: str) -> dict[str, Any]:
    return {"count": found.total(), "by_cause": {name: found[name] for name in names.split()}}


def _runs(flags: list[bool]) -> list[int]:
    """Return the lengths of the runs of what is true."""
    return [len(list(run)) for is_so, run in groupby(flags) if is_so]


def _bad(strips: list[list[int | None]], flag: int) -> dict[str, Any]:
    painted = [[value is not None and bool(value & flag) for value in strip] for strip in strips]
    runs = [run for flags in painted for run in _runs(flags)]
    return {
        "union_ms": sum(map(any, zip(*painted, strict=True))),
        "partition_ms": sum(runs),
        "spans": len(runs),
        "censored": sum(flags[-1] for flags in painted),
        "longest_ms": max(runs, default=None),
    }


def _elections(decisions: list[int]) -> dict[str, Any]:
    """Percentiles by their definition: linear between the two nearest of the sorted values."""

    def at(part: float) -> float:
        place = part * (len(decisions) - 1)
        low = int(place)
        high = min(low + 1, len(decisions) - 1)
        return decisions[low] + (decisions[high] - decisions[low]) * (place - low)

    return {
        "timed": len(decisions),
        "decision_p50_ms": at(0.5),
        "decision_p99_ms": at(0.99),
        "decision_max_ms": at(1),
    }


def _brokers(strips: dict[int, list[int]], since: int) -> dict[str, Any]:
    each = [
        _broker(broker, strip) | {"first_seen_at": since + strip.index(_UP)}
        for broker, strip in sorted(strips.items())
    ]
    names = ("failures", "repairs", "planned_stops", "up_ms", "failed_ms", "planned_ms")
    together = {name: sum(row[name] for row in each) for name in names}
    return {"count": len(each), "restarts": 0, **together, **_means(together), "each": each}


def _broker(broker: int, strip: list[int]) -> dict[str, Any]:
    failed = _runs([state == _FAILED for state in strip])
    counts = {
        "failures": len(failed),
        "repairs": len(failed) - (strip[-1] == _FAILED),
        "planned_stops": len(_runs([state == _PLANNED for state in strip])),
        "up_ms": strip.count(_UP),
        "failed_ms": strip.count(_FAILED),
        "planned_ms": strip.count(_PLANNED),
    }
    return {
        "broker": broker,
        **counts,
        **_means(counts),
        "state_now": {_UP: "up", _FAILED: "failed", _PLANNED: "planned"}[strip[-1]],
        "longest_outage_ms": max(failed, default=None),
        "longest_up_ms": max(_runs([state == _UP for state in strip]), default=None),
        "restarts": 0,
    }


def _means(counts: dict[str, Any]) -> dict[str, Any]:
    failures, repairs = counts["failures"], counts["repairs"]
    return {
        "mtbf_ms": counts["up_ms"] / failures if failures else None,
        "mttr_ms": counts["failed_ms"] / repairs if repairs else None,
    }

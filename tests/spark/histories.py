"""Tiny audit histories written by hand: times in seconds from the start, roles as short tuples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

START_MS = 1_767_225_600_000
"""2026-01-01 00:00:00 UTC."""

Roles: TypeAlias = tuple[int, list[int]]
"""Leader and ISR; the epochs count by themselves."""


class HandWritten:
    """A history to which entries are added in order; ids count from `first_id`."""

    def __init__(self, first_id: int = 0) -> None:
        self.entries: list[dict[str, Any]] = []
        self._first_id = first_id
        self._epochs: dict[tuple[str, int], int] = {}

    def add(
        self, at: float, kind: str, *changes: Mapping[str, Any], actor: str = "", **members: Any
    ) -> None:
        """Add an entry; `noticed` is when its news came, in seconds."""
        noticed = members.pop("noticed", None)
        if noticed is not None:
            members["after"] = {"noticed_at": ms(noticed)}
        self.entries.append(
            {
                "id": self._first_id + len(self.entries),
                "zxid": 100 + len(self.entries),
                "time": ms(at),
                "cause": f"c{len(self.entries)}",
                "actor": actor or "controller-1",
                "kind": kind,
                "outcome": "done",
                "reason": "",
                "resource": {},
                "before": None,
                "after": None,
                "zk": {},
                "changes": list(changes),
            }
            | members
        )

    def change(
        self, topic: str, partition: int, before: Roles | None, after: Roles, reason: str
    ) -> dict[str, Any]:
        """Return the change of a partition's state."""
        epoch = self._epochs.get((topic, partition), -1)
        self._epochs[topic, partition] = epoch + 1
        return {
            "topic": topic,
            "partition": partition,
            "reason": reason,
            "before": None if before is None else _roles(before, epoch),
            "after": _roles(after, epoch + 1),
            "state_version": epoch + 1,
        }

    def brokers(self, at: float, live: Sequence[int]) -> None:
        """Add the word of who is live."""
        self.add(at, "brokers_changed", after={"brokers": list(live)})

    def elected(self, at: float, controller: int) -> None:
        """Add the word of who is the active controller."""
        self.add(at, "controller_elected", after={"id": controller, "url": "", "timestamp": ms(at)})

    def write(self, path: Path) -> Path:
        """Write the entries as the export has them."""
        path.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries))
        return path


def ms(seconds: float) -> int:
    """Return Unix ms."""
    return START_MS + round(seconds * 1000)


def _roles(roles: Roles, epoch: int) -> dict[str, Any]:
    return {"leader": roles[0], "leader_epoch": epoch, "isr": roles[1]}


def failures() -> HandWritten:
    """Three brokers die one after another; 1 leads uncleanly, 3 cleanly again; 2 stays away.

    Older entries are purged: that the partition `old-0` was led by 1 with ISR 1, 2 is known from
    the first change only.
    """
    h = HandWritten(first_id=500)
    h.elected(0, 1)
    h.brokers(0.1, [1, 2, 3])
    made = {"assignment": {"0": [1, 2, 3], "1": [2, 3, 1]}, "configs": {}}
    h.add(1, "topic_created", actor="operator", resource={"topic": "a"}, after=made)
    one = h.change("a", 0, None, (1, [1, 2, 3]), "new")
    two = h.change("a", 1, None, (2, [2, 3, 1]), "new")
    h.add(1, "leaders_initialised", one, two, noticed=1)
    one = h.change("a", 0, (1, [1, 2, 3]), (2, [2, 3]), "isr")
    two = h.change("a", 1, (2, [2, 3, 1]), (2, [2, 3]), "unchanged")
    h.add(10, "broker_change", one, two, reason="failed [1]", noticed=9.99)
    h.brokers(10.1, [2, 3])
    one = h.change("a", 0, (2, [2, 3]), (3, [3]), "isr")
    two = h.change("a", 1, (2, [2, 3]), (3, [3]), "isr")
    h.add(20, "broker_change", one, two, reason="failed [2]", noticed=19.98)
    h.brokers(20.1, [3])
    one = h.change("a", 0, (3, [3]), (-1, [3]), "none")
    two = h.change("a", 1, (3, [3]), (-1, [3]), "none")
    h.add(30, "broker_change", one, two, reason="failed [3]", noticed=29.9)
    h.brokers(30.1, [])
    h.brokers(35, [1])
    one = h.change("a", 0, (-1, [3]), (1, [1]), "unclean")
    h.add(40, "election", one, actor="operator", noticed=39.9)
    two = h.change("a", 1, (-1, [3]), (3, [3]), "isr")
    h.add(50, "broker_change", two, reason="started [3]", noticed=49.95)
    h.brokers(50, [1, 3])
    two = h.change("a", 1, (3, [3]), (3, [3, 1]), "caught up")
    h.add(60, "isr_change", two, actor="broker 3", reason="caught up")
    old = h.change("old", 0, (1, [1, 2]), (1, [1]), "lagging")
    h.add(70, "isr_change", old, actor="broker 1", reason="lagging")
    # What was refused changed nothing, whatever it says.
    h.add(80, "brokers_changed", outcome="refused", after={"brokers": []})
    return h


def plans() -> HandWritten:
    """One partition is stopped, led again, moved, drained around, deleted, made again, removed."""
    h = HandWritten()
    topic = {"topic": "b"}
    h.elected(0, 1)
    h.brokers(0, [1, 2, 3, 4])
    made = {"assignment": {"0": [1, 2]}, "configs": {"min.insync.replicas": "1"}}
    h.add(1, "topic_created", resource=topic, after=made)
    h.add(1, "leaders_initialised", h.change("b", 0, None, (1, [1, 2]), "new"))
    h.add(5, "isr_change", h.change("b", 0, (1, [1, 2]), (1, [1]), "lagging"), reason="lagging")
    h.add(10, "configs_changed", resource=topic, after={"min.insync.replicas": "2"})
    h.add(15, "isr_change", h.change("b", 0, (1, [1]), (1, [1, 2]), "caught up"))
    stop = h.change("b", 0, (1, [1, 2]), (2, [2]), "isr")
    h.add(20, "controlled_shutdown", stop, actor="broker-1", noticed=20)
    h.brokers(21, [2, 3, 4])
    h.brokers(25, [1, 2, 3, 4])
    h.add(26, "isr_change", h.change("b", 0, (2, [2]), (2, [1, 2]), "caught up"))
    back = h.change("b", 0, (2, [1, 2]), (1, [1, 2]), "preferred")
    h.add(30, "election", back, actor="operator", noticed=29.995)
    _move(h)
    h.elected(50, 2)
    h.brokers(50.04, [1, 2, 3, 4])
    bounce = h.change("b", 0, (3, [3, 2]), (3, [3]), "unchanged")
    h.add(55, "broker_change", bounce, reason="bounced [2]")
    h.add(57, "isr_change", h.change("b", 0, (3, [3]), (3, [3, 2]), "caught up"))
    _task(h, 60, "task_begun", "1", "drain", "running", 60, 0, details={"broker": 4})
    _task(h, 62, "task_over", "1", "drain", "done", 60, 62, details={"broker": 4})
    h.brokers(65, [1, 2, 3])
    h.add(70, "topic_deletion_ordered", resource=topic)
    h.add(72, "topic_deleted", resource=topic)
    h.add(72, "topic_created", resource=topic, after={"assignment": {"0": [2, 3]}, "configs": {}})
    h.add(73, "leaders_initialised", h.change("b", 0, None, (2, [2, 3]), "new"))
    gone = h.change("b", 0, (2, [2, 3]), (2, [2]), "unchanged")
    h.add(80, "broker_change", gone, reason="failed [3]")
    h.brokers(80.5, [1, 2])
    h.add(90, "partitions_removal_ordered", resource=topic, after={"partitions": [0]})
    h.add(92, "partitions_removed", resource=topic, after={"assignment": {"0": None}})
    return h


def _move(h: HandWritten) -> None:
    """Move b-0 from 1, 2 to 3, 2 by a task of 7 MB."""
    topic, intent = {"topic": "b", "finished": []}, {"start": [1, 2], "target": [3, 2]}
    _task(h, 40, "task_accepted", "", "reassign", "accepted", 40, 0)
    h.add(40, "reassignment_begun", resource={"tasks": ["0"]}, after={"b": {"0": intent}})
    _task(h, 40, "task_begun", "0", "reassign", "running", 40, 0)
    added = {"replicas": [3, 1, 2], "adding": [3], "removing": [1]}
    grown = h.change("b", 0, (1, [1, 2]), (1, [1, 2]), "unchanged")
    h.add(41, "reassignment_step", grown, resource=topic, after={"0": added})
    h.add(45, "isr_change", h.change("b", 0, (1, [1, 2]), (1, [3, 1, 2]), "caught up"))
    led = h.change("b", 0, (1, [3, 1, 2]), (3, [3, 1, 2]), "reassigned")
    h.add(46, "reassignment_step", led, resource=topic, after={})
    done = {"replicas": [3, 2], "adding": [], "removing": []}
    shrunk = h.change("b", 0, (3, [3, 1, 2]), (3, [3, 2]), "unchanged")
    finished = {"topic": "b", "finished": [0]}
    h.add(47, "reassignment_step", shrunk, resource=finished, after={"0": done})
    _task(h, 48, "task_over", "0", "reassign", "done", 40, 48, moved=7_000_000)


def _task(
    h: HandWritten,
    at: float,
    kind: str,
    task: str,
    what: str,
    state: str,
    created: float,
    finished: float,
    *,
    moved: int = 0,
    details: Mapping[str, Any] | None = None,
) -> None:
    counts = {"done": int(state == "done"), "cancelled": 0, "superseded": 0, "gone": 0}
    after = {
        "state": state,
        "total": 1,
        "created_at": ms(created),
        "finished_at": ms(finished) if finished else 0,
        "outcome": {**counts, "bytes": moved},
        "details": details or {},
    }
    h.add(at, kind, resource={"task": task, "kind": what}, after=after)

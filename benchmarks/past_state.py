"""How long does a past state of the cluster take? It is asked of 100,000 audit entries.

Run `python benchmarks/past_state.py [--entries 100000] [--topics 100] [--partitions 10]
[--rounds 5]`. Histories in SQLite files are asked for the cluster at their end, in their middle,
and at a version. The entries are `isr` changes of single partitions; a `mixed` history with
failures of brokers, topics created and deleted, reassignments and refused requests, too; or `steps`
of reassignments alone, which is the worst case: all of them are replayed. Each answer must equal
the replay of every entry, and its time is also shown as a ratio to the time of that. Printed are
medians, and how many entries were stored in a second. The goal is less than 500 ms for `isr` and
`mixed`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.adapters.history.database import open_database, url_of
from leadline_controller.adapters.history.store import HistoryStore
from leadline_controller.domain.history import AuditQuery, AuditRecord, PastCluster

BATCH = 500
PAGE = 1_000
FIRST_ZXID = 1_000
BROKERS = (1, 2, 3, 4, 5, 6)
FAILURES = 200
"""One entry in so many is the failure or the return of a broker."""
CHANGES = 50
"""The partitions that get another leader with one entry of a failure."""
KINDS = ("isr", "mixed", "steps")


class Cluster:
    """Makes the entries of a cluster whose partitions change at random, with a fixed seed."""

    def __init__(self, kind: str, topics: int, partitions: int) -> None:
        self._random = Random(7)
        self._kind = kind
        self._names = [f"topic-{number}" for number in range(topics)]
        self._partitions = partitions
        self._versions: dict[tuple[str, int], int] = {}

    def records(self, count: int) -> Iterator[AuditRecord]:
        """Yield so many records, one a second; each topic is created first."""
        for number in range(count):
            if number < len(self._names):
                made = self._created(self._names[number])
            else:
                made = self._next(number)
            entry = AuditEntry(1_000 * number, f"cause-{number}", "controller-1", **made)
            yield AuditRecord(number, FIRST_ZXID + number, entry)

    def _next(self, number: int) -> dict[str, Any]:
        if self._kind == "steps":
            return self._step()
        if self._kind == "mixed":
            if number % FAILURES == 0:
                return self._failure(number)
            if number % 50 == 0:
                return self._deleted_or_created(number)
            if number % 10 == 0:
                return self._step()
            if number % 25 == 1:
                resource = {"topic": self._topic(), "topic_id": "id"}
                return {"kind": "create_topic", "outcome": "refused", "resource": resource}
        return {"kind": "isr_change", "reason": "shrunk", "changes": (self._change(),)}

    def _failure(self, number: int) -> dict[str, Any]:
        if number % (2 * FAILURES):
            return {"kind": "brokers_changed", "after": {"brokers": list(BROKERS)}}
        changes = tuple(self._change() for _ in range(CHANGES))
        return {"kind": "broker_change", "after": {"noticed_at": 1}, "changes": changes}

    def _deleted_or_created(self, number: int) -> dict[str, Any]:
        topic = self._names[number // 100 % len(self._names)]
        if number % 100:
            return self._created(topic)
        return {"kind": "topic_deleted", "resource": {"topic": topic, "topic_id": "id"}}

    def _created(self, topic: str) -> dict[str, Any]:
        after = {"assignment": {str(n): self._replicas() for n in range(self._partitions)}}
        resource = {"topic": topic, "topic_id": "id"}
        return {"kind": "topic_created", "resource": resource, "after": after}

    def _step(self) -> dict[str, Any]:
        row = {"replicas": self._replicas(), "adding": [], "removing": []}
        after = {str(self._random.randrange(self._partitions)): row}
        resource = {"topic": self._topic(), "topic_id": "id"}
        return {"kind": "reassignment_step", "resource": resource, "after": after}

    def _change(self) -> StateChange:
        name = self._topic(), self._random.randrange(self._partitions)
        version = self._versions[name] = self._versions.get(name, -1) + 1
        leader, *followers = self._replicas()
        before, after = (leader, 4, (leader, *followers)), (leader, 4, (leader,))
        return StateChange(*name, "shrunk", before, after, version)

    def _topic(self) -> str:
        return self._random.choice(self._names)

    def _replicas(self) -> list[int]:
        return self._random.sample(BROKERS, 3)


def fill(store: HistoryStore, cluster: Cluster, entries: int) -> float:
    """Store entries in batches; return how many were stored in a second."""
    spent, batch = 0.0, list[AuditRecord]()
    for record in cluster.records(entries):
        batch.append(record)
        if len(batch) == BATCH or record.id == entries - 1:
            begun = time.perf_counter()
            store.append(batch)
            spent += time.perf_counter() - begun
            batch = []
    return entries / spent


def replayed(store: HistoryStore, last: int) -> PastCluster:
    """Replay every entry up to an id."""
    past = PastCluster()
    while past.audit_id < last:
        limit = min(PAGE, last - past.audit_id)
        cursor = past.audit_id
        for record in store.find(AuditQuery(), cursor=cursor, newest_first=False, limit=limit):
            past.apply(record)
    return past


def timed(work: Callable[[], PastCluster]) -> tuple[float, PastCluster]:
    """Return the milliseconds that something took, and its result."""
    begun = time.perf_counter()
    past = work()
    return 1_000 * (time.perf_counter() - begun), past


def measure(store: HistoryStore, entries: int, rounds: int) -> None:
    """Print what past states take, as medians."""
    middle = entries // 2
    questions: list[tuple[str, int, int | None, int | None]] = [
        ("now", entries - 1, None, None),
        ("time, middle", middle, 1_000 * middle, None),
        ("time, end", entries - 1, 1_000 * entries, None),
        ("version, middle", middle, None, FIRST_ZXID + middle),
    ]
    for name, last, time_ms, zxid in questions:
        spent, all_spent = [], []
        for _ in range(rounds):
            took, past = timed(partial(store.past, time_ms=time_ms, zxid=zxid))
            all_took, expected = timed(partial(replayed, store, last))
            assert past == expected, "the past differs from the replay of every entry"
            spent.append(took)
            all_spent.append(all_took)
        took, all_took = statistics.median(spent), statistics.median(all_spent)
        print(f"   {name:16} {took:7.1f} ms; all entries {all_took:7.1f} ms: {took / all_took:.3f}")


def main() -> None:
    """Parse the arguments, and measure each kind of history."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10, help="per topic")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            store = HistoryStore(open_database(url_of(Path(folder) / "history.db")))
            cluster = Cluster(kind, options.topics, options.partitions)
            rate = fill(store, cluster, options.entries)
            size = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
            print(f"{kind}: {options.entries} entries, {size:.0f} MB, {rate:.0f} stored a second")
            measure(store, options.entries, options.rounds)
            store.close()


if __name__ == "__main__":
    main()

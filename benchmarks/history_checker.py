"""Checking the history of a run: time and memory for five million records.

    python benchmarks/history_checker.py [--records 5000000] [--plant]

The history is that of a healthy run: 4 producers send batches of 100 values (strings, as in the
fault scenarios) to 24 partitions. An assigned consumer, and a group of two that commits, read all
of it in polls of 500, and a final reader reads each partition whole. Printed are the seconds for
noting all of it, the seconds for the check alone (CPU time of one core), and the peak memory of
the process. With `--plant` anomalies of many kinds are in it, and the check must find them.

Goal: the check takes at most 60 s, and everything at most 2 GiB.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.checks.anomalies import AnomalyKind
from tests.support.checks.group_history import Commit
from tests.support.checks.history import History

PARTITIONS, PRODUCERS, BATCH, POLL = 24, 4, 100, 500
GOAL_S, GOAL_BYTES = 60.0, 2 << 30
PLANTED = {
    AnomalyKind.UNSEEN,
    AnomalyKind.ABORTED_READ,
    AnomalyKind.UNSENT,
    AnomalyKind.DUPLICATE,
    AnomalyKind.INCONSISTENT_OFFSETS,
    AnomalyKind.POLL_SKIP,
    AnomalyKind.NONMONOTONIC_POLL,
    AnomalyKind.LATEST_OFFSET_FELL,
    AnomalyKind.COMMIT_BEYOND_DELIVERED,
}


def write(history: History, records: int) -> list[list[str]]:
    """Send everything; return the values of each partition in the order of their offsets."""
    logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for batch in range(records // BATCH):
        number, at_s = batch % PARTITIONS, batch / 1000
        log = logs[number]
        values = [f"{number}/{place}" for place in range(len(log), len(log) + BATCH)]
        row = history.send_batch(values, ("t", number), batch // PARTITIONS % PRODUCERS, at_s)
        history.ack_batch(row, len(log), at_s + 0.0001)
        log += values
    return logs


def read(history: History, logs: list[list[str]], *, plant: bool) -> None:
    """Poll everything with an assigned consumer and with a group, then read it whole."""
    assigned = history.consumer("assigned")
    members = [history.consumer(name, "group") for name in ("a", "b")]
    for number, log in enumerate(logs):
        partition, owner = ("t", number), members[number % 2]
        owner.assigned([partition], generation=1, at_s=0.0)
        for offset in range(0, len(log), POLL):
            values, at_s = log[offset : offset + POLL], 1e6 + offset
            owner.poll_run(partition, offset, values, at_s)
            end = offset + len(values)
            history.group("group").committed(partition, Commit(end, at_s, at_s + 0.5, owner.name))
            history.ends.add(partition, end, at_s, at_s + 0.5, owner.name)
            if not (plant and number == 0 and offset == POLL):  # a poll skip, and records unseen
                assigned.poll_run(partition, offset, values, at_s)
        history.consumer("final").poll_run(partition, 0, log, 2e6)
    assigned.finished()
    members[0].finished()


def plant_anomalies(history: History, logs: list[list[str]]) -> None:
    """Make the end of partition 1 go wrong in the ways that are left."""
    partition, end = ("t", 1), len(logs[1])
    history.refuse_batch(history.send_batch(["refused"], partition, at_s=3e6), 3e6)
    reader = history.consumer("mad")
    reader.poll_run(partition, end, ["refused", "unsent", logs[1][0]], 3e6)
    reader.poll_run(partition, end, ["unsent"], 3e6 + 1)
    history.consumer("another").poll_run(partition, end, [logs[1][1]], 3e6)
    history.ends.add(partition, 1, 3e6, 3e6 + 1, "mad")
    history.group("group").committed(partition, Commit(end + 1, 3e6, 3e6 + 1, "a"))


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--plant", action="store_true")
    options = parser.parse_args()
    history, began_s = History(), time.process_time()
    logs = write(history, options.records)
    read(history, logs, plant=options.plant)
    if options.plant:
        plant_anomalies(history, logs)
    noted_s = time.process_time() - began_s
    began_s = time.process_time()
    found = history.check(limit=100)
    took_s = time.process_time() - began_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    kinds = Counter(one.kind for one in found)
    print(f"{history.count():,} records sent and acknowledged, each read 3 times")
    print(f"noted in {noted_s:.1f} s, checked in {took_s:.1f} s (goal: {GOAL_S:.0f} s)")
    print(f"{history.count() / took_s * 60 / 1e6:.0f} million records a minute")
    print(f"peak memory {peak / (1 << 30):.2f} GiB (goal: {GOAL_BYTES / (1 << 30):.0f} GiB)")
    print(f"anomalies: {dict(kinds) or 'none'}")
    missing = PLANTED - kinds.keys() if options.plant else set()
    if missing or (kinds and not options.plant):
        sys.exit(f"wrong: {sorted(missing) or found[:3]}")
    if took_s > GOAL_S or peak > GOAL_BYTES:
        sys.exit("the goal is missed")


if __name__ == "__main__":
    main()

"""The invariants that every fault scenario checks after the cluster has healed.

Their numbers are those of docs/testing.md. A check returns sentences; none means
that the invariant held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from leadline_client.client import AsyncClient
from leadline_client.errors import OffsetOutOfRange
from leadline_common.audit_export import EXPORT_PATH, decode_line, imported
from leadline_controller.domain.history import AuditRecord
from tests.support.checks.history import Anomaly, Read
from tests.support.checks.replica_files import Replica, differences, read_replica
from tests.support.checks.replica_samples import IsrHistory
from tests.support.checks.zk_history import ZkView, read_cluster
from tests.support.faults.load import Ack, Load, read_partition
from tests.support.faults.observer import Observer
from tests.support.services.cluster import Cluster

_SHOWN = 40


async def unsettled(cluster: Cluster, topic: str) -> list[str]:
    """Say what still moves: leaders missing, ISR short, replicas behind, brokers that disagree."""
    view = await read_cluster(cluster)
    rows = await _replica_rows(cluster)
    found = [f"{name} does not answer" for name, answer in rows.items() if answer is None]
    assignment = view.topics[topic].partitions if topic in view.topics else {}
    if not assignment:
        found.append(f"{topic} is not in ZooKeeper")
    for partition, replicas in assignment.items():
        state = view.states.get((topic, partition))
        if state is None or state[0].leader < 0 or set(state[0].isr) != set(replicas):
            found.append(f"{topic}-{partition} is {state and state[0]}, assigned to {replicas}")
            continue
        local = [_row_of(rows[f"broker-{broker}"], topic, partition) for broker in replicas]
        found += _disagreement(f"{topic}-{partition}", local, state[0].leader_epoch)
    return found + await _metadata_problems(cluster, topic, view)


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong: with the cluster and its replicas, and with what readers got."""

    problems: Sequence[str]
    anomalies: Sequence[Anomaly]

    def lines(self) -> list[str]:
        """Return everything in words; none if all invariants held."""
        shown = [str(anomaly) for anomaly in self.anomalies[:_SHOWN]]
        if len(self.anomalies) > _SHOWN:
            shown.append(f"... and {len(self.anomalies) - _SHOWN} more anomalies")
        return [*self.problems, *shown]


async def examine(cluster: Cluster, load: Load, observer: Observer | None = None) -> Findings:
    """Check a settled cluster after a stopped load: I1-I9, I11, I12 and I14.

    With an `observer` that has watched the run, also I13, I16, I17 and the rest of I8.
    """
    view = await read_cluster(cluster)
    if view.audit_begins:
        view = view.completed(await stored_history(cluster, await cluster.active_controller()))
    records = await _records(cluster, load, view)
    found = await asyncio.to_thread(judge, load, view, *records)
    watched = await observer.problems(view) if observer is not None else []
    return Findings([*found.problems, *watched], found.anomalies)


async def examine_records(cluster: Cluster, load: Load) -> Findings:
    """Check what readers got and replicas hold, but not who was elected when: I1-I5, I9."""
    records = await _records(cluster, load, await read_cluster(cluster))
    return await asyncio.to_thread(judge_records, load, *records)


async def _records(
    cluster: Cluster, load: Load, view: ZkView
) -> tuple[list[Read], list[int], dict[int, list[Replica]]]:
    """Return final reads, high watermarks, and the replicas' files of all partitions."""
    topic, numbers = load.topic, range(load.partitions)
    async with AsyncClient(cluster.bootstrap) as client:
        reads = [await read_partition(client, topic, number) for number in numbers]
        uncertain = IsrHistory(view.audit).uncertain
        for tail in load.tails:
            # After an unclean election a reader may stand beyond the log, or miss what was cut.
            if (topic, tail.partition) not in uncertain:
                try:
                    await tail.read_to_end(client)
                except OffsetOutOfRange as error:
                    where = f"{topic}-{tail.partition}"
                    tail.problems.append(f"I9: a reader of {where} stands beyond it: {error}")
        marks = [(await client.offsets(topic, number)).high_watermark for number in numbers]
    assignment = view.topics[topic].partitions
    replicas = {
        number: [_files(cluster, broker, topic, number) for broker in assignment[number]]
        for number in numbers
    }
    return reads, marks, replicas


async def stored_history(cluster: Cluster, controller: str) -> list[AuditRecord]:
    """Return all of the audit that a controller has stored."""
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        answer = await http.get(cluster.url(controller) + EXPORT_PATH)
    assert answer.status_code == 200, answer.text
    entries = map(decode_line, answer.content.splitlines())
    return [AuditRecord(entry.id, entry.zxid, imported(entry)) for entry in entries]


def judge(
    load: Load,
    view: ZkView,
    reads: Sequence[Read],
    marks: Sequence[int],
    replicas: Mapping[int, Sequence[Replica]],
) -> Findings:
    """Compare a load's history with final reads, high watermarks, replicas' files and ZooKeeper."""
    found = view.problems()
    for number, copies in replicas.items():
        acks = [ack for ack in load.acks if ack.partition == number]
        found += stamped_wrongly(acks, copies[0], view.leaders(load.topic, number))
    records = judge_records(load, reads, marks, replicas)
    return Findings([*found, *records.problems], records.anomalies)


def judge_records(
    load: Load,
    reads: Sequence[Read],
    marks: Sequence[int],
    replicas: Mapping[int, Sequence[Replica]],
) -> Findings:
    """Compare a load's history with final reads, high watermarks and replicas' files."""
    found = []
    for number, copies in replicas.items():
        found += [problem for copy in copies for problem in copy.problems()]
        found += differences(copies, marks[number])
        found += [
            f"I5: {copy.broker} ends {load.topic}-{number} at {copy.log_end_offset}, "
            f"the high watermark is {marks[number]}"
            for copy in copies
            if copy.log_end_offset != marks[number]
        ]
    for tail in load.tails:
        found += tail.problems
    stored = [copy.as_read() for copies in replicas.values() for copy in copies]
    return Findings(found, load.history.check([*reads, *stored]))


def stamped_wrongly(acks: Sequence[Ack], replica: Replica, leaders: Mapping[int, int]) -> list[str]:
    """Say which acknowledgements name another epoch than the one their records carry (I7).

    Records that are gone altogether are the history's to find.
    """
    epochs = {batch.base_offset: batch.leader_epoch for batch in replica.batches}
    where = f"{replica.topic}-{replica.partition}"
    found = [
        f"I7: {where}: acknowledged at {ack.base_offset} in epoch {ack.leader_epoch}, "
        f"stored in epoch {epochs[ack.base_offset]}"
        for ack in acks
        if not ack.duplicate and epochs.get(ack.base_offset, ack.leader_epoch) != ack.leader_epoch
    ]
    strangers = sorted(set(epochs.values()) - {e for e, leader in leaders.items() if leader >= 0})
    return found + [f"I7: {where}: nobody was elected for epoch {epoch}" for epoch in strangers]


def _files(cluster: Cluster, broker: int, topic: str, partition: int) -> Replica:
    name = f"broker-{broker}"
    log_dir = cluster.service(name).log_dir
    assert log_dir is not None
    return read_replica(name, Path(log_dir), topic, partition)


async def _replica_rows(cluster: Cluster) -> dict[str, list[dict[str, Any]] | None]:
    answers: dict[str, list[dict[str, Any]] | None] = {}
    for broker in cluster.supervisor.layout.brokers:
        try:
            answers[broker.name] = await cluster.replicas(broker.name)
        except httpx.HTTPError:
            answers[broker.name] = None
    return answers


def _row_of(
    rows: Sequence[Mapping[str, Any]] | None, topic: str, partition: int
) -> Mapping[str, Any] | None:
    matching = (row for row in rows or () if (row["topic"], row["partition"]) == (topic, partition))
    return next(matching, None)


def _disagreement(name: str, rows: Sequence[Mapping[str, Any] | None], epoch: int) -> list[str]:
    if any(row is None for row in rows):
        return [f"{name} is missing at a broker"]
    facts = {
        (row["leader_epoch"], row["log_end_offset"], row["durable_end_offset"]): None
        for row in rows
        if row is not None
    }
    marks = {row["high_watermark"] for row in rows if row is not None}
    ends = {end for _, *both in facts for end in both}
    if len(facts) == 1 and next(iter(facts))[0] == epoch and marks == ends:
        return []
    return [f"{name}: brokers are at (epoch, end, durable end) {list(facts)}, HW {marks}"]


async def _metadata_problems(cluster: Cluster, topic: str, view: ZkView) -> list[str]:
    """Say which broker tells clients something else than ZooKeeper (I11)."""
    expected = [
        [number, state.leader, state.leader_epoch, list(state.isr)]
        for (name, number), (state, _) in sorted(view.states.items())
        if name == topic
    ]
    found = []
    for broker in cluster.supervisor.layout.brokers:
        answer = await cluster.get(broker.name, "/v1/metadata", topics=topic)
        if answer.status_code != httpx.codes.OK:
            found.append(f"I11: {broker.name} knows nothing yet: {answer.text}")
            continue
        rows = answer.json()["topics"].get(topic, {"partitions": []})["partitions"]
        if [row[:4] for row in rows] != expected:
            found.append(f"I11: {broker.name} says {rows}, ZooKeeper {expected}")
    return found

"""Which topics and partitions a restored cluster begins with. Pure: no IO.

The backup says which topics there were, the logs say which there are. A topic that was created, or
got partitions, after the backup is known from its logs alone; a topic that was created again has
another id in its logs. Reassignments and removals of partitions that had begun are not continued:
the replicas that a partition had meanwhile stay assigned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from leadline_broker.adapters.log.survey import LogSurvey
from leadline_cli.backup.recovery import (
    FoundLog,
    LogEnd,
    NotRecoverable,
    longest_log,
    recovered_state,
)
from leadline_common.directories import FIRST_DIRECTORY_EPOCH, next_directories
from leadline_common.znodes import BrokerEpoch, PartitionState, TopicAssignment

NEVER_WRITTEN: Final = LogEnd(-1, 0)
"""The end of a replica without a log."""

Logs: TypeAlias = Mapping[int, FoundLog]
"""The logs of one partition, by broker."""


@dataclass(frozen=True, slots=True)
class BackedUpTopic:
    """A topic as the backup has it."""

    assignment: TopicAssignment
    states: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic to begin with. One that the backup lacks is `new`: its settings are not known."""

    assignment: TopicAssignment
    states: Mapping[int, PartitionState]
    new: bool


@dataclass(frozen=True, slots=True)
class SurveyedBrokers:
    """What the logs of all brokers hold.

    `epochs` has the new value of each broker's persistent node, with its directories' epochs
    (rule R17), and `present` the epoch of the surveyed one; `logs` the logs by topic, topic id,
    partition and broker; `lost` the brokers that have lost the log of a (topic id, partition).
    """

    epochs: Mapping[int, BrokerEpoch]
    present: Mapping[int, int]
    logs: Mapping[str, Mapping[str, Mapping[int, Logs]]]
    lost: Mapping[tuple[str, int], Collection[int]]

    @classmethod
    def of(
        cls,
        surveys: Sequence[LogSurvey],
        known: Mapping[int, BrokerEpoch],
        accepted: Collection[int],
    ) -> SurveyedBrokers:
        """Combine the surveys of all brokers that are `known` to the backup.

        Losses of the brokers in `accepted` count as if nothing had ever been written there.

        Raises:
            NotRecoverable: a broker has no survey or several, or has another directory than at the
                time of the backup.

        """
        _require_all(surveys, known, accepted)
        epochs, present = dict(known), {}
        logs: _MutableLogs = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
        lost: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for survey in surveys:
            before = known.get(survey.broker_id, BrokerEpoch())
            own = [log.directory_id for log in survey.logs if log.directory_id]
            directories = next_directories(before.directories, [survey.directory_id, *own])
            epochs[survey.broker_id] = msgspec.structs.replace(before, directories=directories)
            present[survey.broker_id] = directories[survey.directory_id]
            for log in survey.logs:
                found = FoundLog(
                    LogEnd(log.last_epoch, log.end_offset),
                    directories[log.directory_id or survey.directory_id],
                )
                logs[log.topic][log.topic_id][log.partition][survey.broker_id] = found
            for key in () if survey.broker_id in accepted else survey.lost:
                lost[key].append(survey.broker_id)
        return cls(epochs, present, logs, lost)


_MutableLogs: TypeAlias = defaultdict[str, defaultdict[str, defaultdict[int, dict[int, FoundLog]]]]


def _require_all(
    surveys: Sequence[LogSurvey], known: Mapping[int, BrokerEpoch], accepted: Collection[int]
) -> None:
    brokers = [survey.broker_id for survey in surveys]
    twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
    if twice:
        raise NotRecoverable(f"there are several log directories of broker {twice[0]}")
    missing = sorted(known.keys() - set(brokers) - set(accepted))
    if missing:
        raise NotRecoverable(
            f"the logs of brokers {missing} are not there to compare. Give them; or, if they are "
            f"lost for good, accept that with --accept-loss {missing[0]}"
        )
    for survey in surveys:
        directories = known.get(survey.broker_id, BrokerEpoch()).directories
        replaced = directories and survey.directory_id not in directories
        if replaced and survey.broker_id not in accepted:
            raise NotRecoverable(
                f"broker {survey.broker_id} has another log directory than at the time of the "
                "backup. If the one of then does not exist any more, accept that with "
                f"--accept-loss {survey.broker_id}"
            )


@dataclass(slots=True)
class TopicRecovery:
    """Decides topic by topic. `chosen` has the ids that the user has chosen, by topic."""

    brokers: SurveyedBrokers
    chosen: Mapping[str, str] = field(default_factory=dict)

    def restore(self, topics: Mapping[str, BackedUpTopic]) -> dict[str, RestoredTopic]:
        """Return the topics to begin with, by name.

        Raises:
            NotRecoverable: the logs do not tell what a topic or partition should begin with.

        """
        names = sorted(topics.keys() | self.brokers.logs.keys())
        return {name: self._restored(name, topics.get(name)) for name in names}

    def _restored(self, name: str, before: BackedUpTopic | None) -> RestoredTopic:
        topic_id = self._topic_id(name, before)
        logs = self.brokers.logs.get(name, {}).get(topic_id, {})
        known = before is not None and before.assignment.topic_id == topic_id
        if before is None or not known:
            before = BackedUpTopic(TopicAssignment(topic_id, {}), {})
        assignment = before.assignment
        partitions: dict[int, tuple[int, ...]] = {}
        states = {}
        for number in _numbers(assignment, logs):
            lost = self.brokers.lost.get((topic_id, number))
            if lost:
                raise NotRecoverable(
                    f"{name}-{number}: brokers {sorted(lost)} have lost its log. To begin with "
                    f"what the others have, accept that with --accept-loss {min(lost)}"
                )
            had = assignment.partitions.get(number, ())
            found = logs.get(number, {})
            replicas = _replicas(had, found) or _like(number, partitions, logs)
            counted = self._counted(replicas, found)
            leader = longest_log(counted, replicas)
            first_epoch = assignment.first_epochs.get(number, 0)
            partitions[number] = replicas
            before_state = before.states.get(number)
            states[number] = recovered_state(before_state, leader, counted, first_epoch)
        kept = msgspec.structs.replace(assignment, partitions=partitions, adding={}, removing={})
        return RestoredTopic(kept, states, new=not known)

    def _topic_id(self, name: str, before: BackedUpTopic | None) -> str:
        """Return the id whose logs count: a topic that was created again has another one.

        Raises:
            NotRecoverable: there are logs of several.

        """
        ids = sorted(self.brokers.logs.get(name, {}))
        if name in self.chosen:
            return self.chosen[name]
        if len(ids) > 1:
            raise NotRecoverable(
                f"there are logs of several topics {name}, which was deleted and created again: "
                f"choose one with --topic-id {name}={ids[0]} (or {', '.join(ids[1:])})"
            )
        if ids:
            return ids[0]
        return before.assignment.topic_id if before is not None else ""

    def _counted(self, replicas: Sequence[int], found: Logs) -> Logs:
        """Return the logs to compare; a replica that was never written counts as empty."""
        present = self.brokers.present
        empty = {b: FoundLog(NEVER_WRITTEN, present[b]) for b in replicas if b in present}
        # All brokers may be lost for good. Then the first replica is in sync, but in a directory
        # that will not return: only an unclean election makes another one lead.
        return empty | dict(found) or {replicas[0]: FoundLog(NEVER_WRITTEN, FIRST_DIRECTORY_EPOCH)}


def _numbers(assignment: TopicAssignment, logs: Mapping[int, Logs]) -> Iterator[int]:
    """Yield the partitions: those assigned or with logs, and any before the last that is new.

    Those were assigned after the backup, too, and nothing was written to them.
    """
    numbers = assignment.partitions.keys() | logs.keys()
    known = max(assignment.partitions, default=-1)
    return iter(sorted(numbers | set(range(known + 1, max(logs, default=-1) + 1))))


def _replicas(had: tuple[int, ...], found: Logs) -> tuple[int, ...]:
    """Return the assignment: as it was, unless the longest log is of a broker outside of it.

    Then the partition was reassigned after the backup, to brokers that have logs now.
    """
    if not found:
        return had
    leader = longest_log(found, had)
    if leader in had:
        return had
    holders = [leader, *sorted(found.keys() - {leader})]
    others = [broker for broker in had if broker not in found]
    return tuple(holders + others[: max(0, len(had) - len(holders))])


def _like(
    number: int, before: Mapping[int, tuple[int, ...]], logs: Mapping[int, Logs]
) -> tuple[int, ...]:
    """Return replicas for an unknown, empty partition: those of the one before it, or after it."""
    if before:
        return before[max(before)]
    return tuple(sorted(logs[min(n for n in logs if n > number)]))

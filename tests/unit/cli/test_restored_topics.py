"""Which topics and partitions a restored cluster begins with."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from leadline_broker.adapters.log.survey import LogSurvey, SurveyedLog
from leadline_cli.backup.recovery import NotRecoverable
from leadline_cli.backup.restored_topics import (
    BackedUpTopic,
    RestoredTopic,
    SurveyedBrokers,
    TopicRecovery,
)
from leadline_common.znodes import BrokerEpoch, PartitionState, TopicAssignment

OLD, NEW = "old-id", "new-id"
KNOWN = {broker: BrokerEpoch({f"disk-{broker}": 1}) for broker in (1, 2, 3)}


def log(
    partition: int = 0, epoch: int = 1, end: int = 10, topic: str = "t", topic_id: str = OLD
) -> SurveyedLog:
    return SurveyedLog(topic, topic_id, partition, epoch, end)


def survey(broker: int, *logs: SurveyedLog, lost: tuple[tuple[str, int], ...] = ()) -> LogSurvey:
    return LogSurvey("c", broker, f"disk-{broker}", 3, 1, 8, logs, lost)


def topic(*replicas: int, first_epochs: Mapping[int, int] | None = None) -> BackedUpTopic:
    assignment = TopicAssignment(OLD, {0: replicas}, first_epochs=first_epochs or {})
    return BackedUpTopic(assignment, {0: PartitionState(replicas[0], 4, replicas, 2)})


def restore(
    topics: Mapping[str, BackedUpTopic],
    *surveys: LogSurvey,
    accepted: frozenset[int] = frozenset(),
    chosen: Mapping[str, str] | None = None,
) -> dict[str, RestoredTopic]:
    given = {one.broker_id for one in surveys}
    rest = [survey(broker) for broker in KNOWN.keys() - given - accepted]
    brokers = SurveyedBrokers.of([*surveys, *rest], KNOWN, accepted)
    return TopicRecovery(brokers, chosen or {}).restore(topics)


def test_the_longest_log_of_the_assigned_replicas_is_in_sync_alone() -> None:
    restored = restore({"t": topic(1, 2, 3)}, survey(1, log(end=9)), survey(2, log(end=10)))["t"]
    assert restored.states[0] == PartitionState(-1, 1_000_004, (2,), 2)
    assert restored.assignment.partitions == {0: (1, 2, 3)}
    assert not restored.new


def test_a_partition_without_records_begins_with_its_first_replica() -> None:
    assert restore({"t": topic(3, 1)})["t"].states[0].isr == (3,)


def test_replicas_that_were_assigned_after_the_backup_replace_those_without_a_log() -> None:
    backed_up = {"t": topic(1, 2)}
    moved = restore(backed_up, survey(3, log(epoch=5)), survey(2, log(epoch=5, end=7)))["t"]
    assert moved.assignment.partitions == {0: (3, 2)}
    assert moved.states[0].isr == (3,)


def test_what_was_reassigned_at_the_backup_keeps_all_replicas_and_goes_no_further() -> None:
    assignment = TopicAssignment(OLD, {0: (1, 2, 3)}, {0: (3,)}, {0: (1,)})
    backed_up = {"t": BackedUpTopic(assignment, {})}
    restored = restore(backed_up, survey(1, log()), survey(2, log()))["t"].assignment
    assert (restored.partitions, restored.adding, restored.removing) == ({0: (1, 2, 3)}, {}, {})


def test_a_topic_that_the_backup_lacks_is_known_from_its_logs() -> None:
    found = (log(1, topic="new", topic_id=NEW), log(3, topic="new", topic_id=NEW))
    restored = restore({}, survey(1, *found), survey(2, found[0]))["new"]
    assert restored.new
    assert restored.assignment.topic_id == NEW
    assert restored.assignment.partitions == {0: (1, 2), 1: (1, 2), 2: (1, 2), 3: (1,)}
    assert {number: state.isr for number, state in restored.states.items()} == {
        0: (1,),
        1: (1,),
        2: (1,),
        3: (1,),
    }


def test_partitions_that_were_added_after_the_backup_are_known_from_their_logs() -> None:
    restored = restore({"t": topic(1, 2)}, survey(1, log()), survey(3, log(2)))["t"]
    assert restored.assignment.partitions == {0: (1, 2), 1: (1, 2), 2: (3,)}
    assert not restored.new


def test_a_partition_that_was_removed_before_the_backup_stays_removed() -> None:
    assignment = TopicAssignment(OLD, {0: (1,), 2: (1,)}, first_epochs={1: 40, 2: 50})
    restored = restore({"t": BackedUpTopic(assignment, {})})["t"]
    assert sorted(restored.assignment.partitions) == [0, 2]
    assert restored.states[2].leader_epoch == 1_000_050, "above what the removed one had"


def test_a_topic_that_was_created_again_is_the_one_with_logs() -> None:
    restored = restore({"t": topic(1, 2)}, survey(3, log(topic_id=NEW)))["t"]
    assert (restored.assignment.topic_id, restored.new) == (NEW, True)
    assert restored.assignment.partitions == {0: (3,)}


def test_of_two_topics_with_logs_the_user_chooses() -> None:
    both = (survey(1, log()), survey(2, log(topic_id=NEW)))
    with pytest.raises(NotRecoverable, match=f"--topic-id t={NEW} .or {OLD}"):
        restore({"t": topic(1, 2)}, *both)
    assert restore({"t": topic(1, 2)}, *both, chosen={"t": OLD})["t"].states[0].isr == (1,)
    assert restore({"t": topic(1, 2)}, *both, chosen={"t": NEW})["t"].states[0].isr == (2,)


def test_a_lost_log_must_be_accepted() -> None:
    lost = survey(2, lost=((OLD, 0),))
    with pytest.raises(NotRecoverable, match=r"t-0: brokers \[2\] have lost.*--accept-loss 2"):
        restore({"t": topic(1, 2)}, survey(1, log()), lost)
    restored = restore({"t": topic(1, 2)}, survey(1, log()), lost, accepted=frozenset({2}))
    assert restored["t"].states[0].isr == (1,)


def test_a_broker_whose_logs_are_missing_must_be_accepted() -> None:
    surveys = [survey(1, log()), survey(2, log())]
    with pytest.raises(NotRecoverable, match=r"brokers \[3\].*--accept-loss 3"):
        SurveyedBrokers.of(surveys, KNOWN, ())
    restored = restore({"t": topic(3, 1)}, *surveys, accepted=frozenset({3}))["t"]
    assert restored.states[0].isr == (1,)
    nothing_left = restore({"t": topic(3)}, accepted=frozenset({3}))["t"]
    assert nothing_left.states[0].isr == (3,), "nobody else has ever been assigned"


def test_r17_another_directory_than_that_of_the_backup_must_be_accepted() -> None:
    replaced = LogSurvey("c", 2, "another", 3, 1, 8, (log(end=20),))
    with pytest.raises(NotRecoverable, match="broker 2 has another log directory"):
        restore({"t": topic(1, 2)}, survey(1, log()), replaced)
    restored = restore({"t": topic(1, 2)}, survey(1, log()), replaced, accepted=frozenset({2}))
    assert restored["t"].states[0].directory_epochs == {2: 2}


def test_r17_a_replica_with_a_directory_id_of_its_own_keeps_it() -> None:
    own = LogSurvey("c", 2, "disk-2", 3, 1, 8, (SurveyedLog("t", OLD, 0, 9, 9, "own"),))
    brokers = SurveyedBrokers.of([own, survey(1), survey(3)], KNOWN, ())
    assert brokers.epochs[2].directories == {"own": 2, "disk-2": 1}
    restored = TopicRecovery(brokers).restore({"t": topic(1, 2)})["t"]
    assert restored.states[0].directory_epochs == {2: 2}


def test_two_directories_of_one_broker_are_refused() -> None:
    with pytest.raises(NotRecoverable, match="several log directories of broker 1"):
        SurveyedBrokers.of([survey(1), survey(1), survey(2), survey(3)], KNOWN, ())

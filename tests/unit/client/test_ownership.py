"""What an application may commit: offsets of the ownership, and of the topic, that it knows."""

from __future__ import annotations

from leadline_client.ownership import Ownership
from leadline_client.wire import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def owning(*topic_partitions: TopicPartition) -> Ownership:
    ownership = Ownership()
    for one in topic_partitions:
        ownership.begin(one)
    ownership.tell(topic_partitions)
    return ownership


def test_a_partition_that_was_lost_and_assigned_again_is_another_ownership() -> None:
    ownership = owning(A, B)
    ownership.end([A])
    ownership.begin(A)
    assert ownership.lost_of(ownership.known([A, B])) == {A}
    ownership.tell([A])
    assert not ownership.lost_of(ownership.known([A, B]))


def test_what_an_application_has_of_a_topic_is_not_of_the_next_one() -> None:
    ownership = owning(A, B)
    ownership.restart(A)
    assert ownership.lost_of(ownership.known([A, B])) == {A}
    ownership.tell_restarted([B])
    assert ownership.lost_of(ownership.known([A, B])) == {A}
    ownership.tell_restarted([A])
    assert not ownership.lost_of(ownership.known([A, B]))


def test_a_commit_that_began_before_does_not_go_on() -> None:
    ownership = owning(A)
    known = ownership.known([A])
    ownership.restart(A)
    ownership.tell_restarted([A])
    assert ownership.lost_of(known) == {A}


def test_a_restart_of_what_is_lost_gives_nothing_back() -> None:
    ownership = owning(A)
    ownership.end([A])
    ownership.restart(A)
    ownership.tell_restarted([A])
    assert ownership.lost_of({A: 1}) == {A}

"""Which states of the metadata a broker remembers, and for how long."""

from __future__ import annotations

from leadline_broker.domain.metadata_history import ChangesSince, MetadataHistory
from leadline_common.metadata_tags import MetadataTag


def tag(version: int, epoch: int = 1) -> MetadataTag:
    return MetadataTag(epoch, version)


def history(*versions: int, states: int = 100, deleted: int = 100) -> MetadataHistory:
    found = MetadataHistory(states, deleted)
    for number, version in enumerate(versions):
        found.advance(tag(version), full=not number)
    return found


def test_a_tag_reads_as_it_is_written() -> None:
    assert MetadataTag.parse(str(tag(1042, 3))) == tag(1042, 3)
    for text in ("", "3", "3-", "3-1042-x", "-3-1", "3-1042\n", "٣-1", "1" * 30 + "-1"):
        assert MetadataTag.parse(text) is None


def test_a_state_that_was_served_and_one_that_was_gone_over() -> None:
    found = history(10, 20, 30)
    assert found.since(tag(10)) == ChangesSince(1, whole_topics=False)
    assert found.since(tag(15)) == ChangesSince(1, whole_topics=True)
    assert found.since(tag(30)) == ChangesSince(3, whole_topics=False)
    assert found.since(tag(35)) == ChangesSince(3, whole_topics=False)


def test_an_unknown_state() -> None:
    found = history(10, 20)
    assert found.since(tag(9)) is None
    assert found.since(tag(25, epoch=2)) is None
    assert found.since(tag(15, epoch=0)) is None
    assert MetadataHistory().since(tag(1)) is None


def test_a_full_request_of_another_controller() -> None:
    found = history(10, 20)
    found.advance(tag(25, epoch=2), full=True)
    assert found.since(tag(20)) == ChangesSince(2, whole_topics=False)
    assert found.since(tag(22)) is None
    assert found.since(tag(22, epoch=2)) is None


def test_the_earliest_states_are_forgotten() -> None:
    found = history(*range(1, 12), states=5)
    assert found.step == 11
    assert found.since(tag(5)) is None
    assert found.since(tag(6)) == ChangesSince(6, whole_topics=False)


def test_a_state_from_before_a_forgotten_deletion_is_unknown() -> None:
    found = history(10, deleted=1)
    for version, name in ((20, "a"), (30, "b")):
        found.advance(tag(version), full=False)
        found.note_deleted(name)
    assert found.since(tag(10)) is None
    since = found.since(tag(20))
    assert since == ChangesSince(2, whole_topics=False)
    assert found.deleted_since(2) == ["b"]


def test_a_topic_that_exists_again_is_not_deleted() -> None:
    found = history(10, 20)
    found.note_deleted("a")
    found.note_deleted("b")
    found.note_present("a")
    assert found.deleted_since(1) == ["b"]
    assert found.deleted_since(2) == []

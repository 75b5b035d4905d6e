"""Logs that are gone, or have lost committed records, get an id of their own (rule R17)."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.log_directories import Start, flip_last_byte, own_ids, written
from tests.unit.broker.log_support import batch


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "damaged"])
@pytest.mark.parametrize("is_late", [True, False], ids=["opened-later", "opened"])
def test_defect_36_without_high_watermarks_a_truncated_log_counts_as_lost(
    start: Start, short: set[str], *, is_gone: bool, is_late: bool
) -> None:
    """What was truncated may have been committed, and the log could be elected with the rest."""
    directory = start()
    written(directory, "a", "b", "c")
    directory.checkpoint_high_watermarks({(f"id-{one}", 0): 3 for one in "abc"})
    directory.identity.persist_version(1)
    checkpoint = directory.root / "replication-offset-checkpoint"
    if is_gone:
        checkpoint.unlink()
    else:
        flip_last_byte(checkpoint)
    (segment,) = (directory.root / "a-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 1)
    directory.release()
    if is_late:
        short |= {"a", "b"}

    again = start()
    short.clear()
    if is_late:
        assert again.unopened.open_again()
        again.take_opened()

    assert own_ids(again) == {"a"}
    assert all(high_watermark == 0 for *_, high_watermark in again.stored())
    again.release()
    assert own_ids(start()) == {"a"}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_log_that_is_not_elected_any_more_is_named_with_the_reason(
    start: Start, *, is_known: bool
) -> None:
    directory = start()
    written(directory, "a", "b")
    directory.checkpoint_high_watermarks({("id-a", 0): 3, ("id-b", 0): 3})
    if not is_known:
        flip_last_byte(directory.root / "replication-offset-checkpoint")
    (segment,) = (directory.root / "a-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 1)
    with capture_logs() as lines:
        start()
    (line,) = [one for one in lines if one["event"].startswith("log may lack committed records")]
    assert line["log"] == "a-0"
    unknown = r"recovery truncated \d+ bytes at offset 2, .* is damaged or gone"
    assert re.fullmatch(
        "it ends at 2, and 3 was committed" if is_known else unknown, line["reason"]
    )


def test_a_directory_without_a_checkpoint_yet_has_lost_nothing(start: Start) -> None:
    directory = start()
    written(directory, "a")
    (segment,) = (directory.root / "a-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 1)
    assert own_ids(start()) == set()


def test_defect_01_a_directory_keeps_its_id_and_an_emptied_one_gets_another(start: Start) -> None:
    first = start().identity.directory_id
    again = start()
    assert again.identity.directory_id == first
    shutil.rmtree(again.root)

    assert start().identity.directory_id != first


def test_defect_01_logs_without_the_id_of_their_directory_get_a_new_one(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    first = directory.identity.directory_id
    (directory.root / "meta.json").unlink()

    again = start()

    assert again.identity.directory_id != first
    assert own_ids(again) == set()


def test_defect_01_a_log_that_was_never_written_is_not_lost(start: Start) -> None:
    directory = start()
    directory.open("empty", "id-empty", 0)
    written(directory, "a")

    assert start().lost == []


def test_defect_01_a_missing_log_gets_a_directory_id_of_its_own(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    shutil.rmtree(directory.root / "a-0")

    again = start()
    assert again.lost == [("id-a", 0)]
    first = again.own_directory_ids()
    assert own_ids(again) == {"a"}
    assert start().own_directory_ids() == first, "it is not lost twice"

    written(start(), "a")
    assert start().own_directory_ids() == first
    shutil.rmtree(start().root / "a-0")
    second = start().own_directory_ids()
    assert own_ids(start()) == {"a"}
    assert second != first


def test_defect_01_an_emptied_log_is_lost_too(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    for path in (directory.root / "a-0").glob("0*"):
        path.unlink()

    assert own_ids(start()) == {"a"}


def test_defect_01_an_unreadable_log_is_lost_until_it_is_written_again(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    (directory.root / "a-0" / "partition.metadata").write_bytes(b"?")

    assert own_ids(start()) == {"a"}


@pytest.mark.parametrize("kept", [True, False], ids=["whole", "shorter"])
def test_defect_01_a_log_that_can_be_read_again_counts_again_if_it_is_whole(
    start: Start, kept: bool
) -> None:
    """Also after the high watermarks of the other logs were written meanwhile."""
    directory = start()
    written(directory, "a", "b")
    directory.checkpoint_high_watermarks({("id-a", 0): 3, ("id-b", 0): 3})
    directory.release()
    (segment,) = (directory.root / "a-0").glob("*.log")
    aside = segment.rename(directory.root / "aside")
    segment.mkdir()
    again = start()
    assert (list(again.unopened.failures), own_ids(again)) == ([("id-a", 0)], {"a"})
    again.checkpoint_high_watermarks({("id-b", 0): 3})
    again.release()
    segment.rmdir()
    aside.rename(segment)
    if not kept:
        os.truncate(segment, segment.stat().st_size - 1)

    assert own_ids(start()) == (set() if kept else {"a"})


def test_defect_01_an_unreadable_log_that_was_set_aside_is_lost(start: Start) -> None:
    directory = start()
    written(directory, "a")
    directory.release()
    (segment,) = (directory.root / "a-0").glob("*.log")
    segment.unlink()
    segment.mkdir()
    again = start()
    first = again.own_directory_ids()

    again.open("a", "id-other", 0)

    assert start().own_directory_ids() == first == {("id-a", 0): first["id-a", 0]}


def test_defect_01_a_log_below_its_checkpointed_high_watermark_is_lost(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    directory.checkpoint_high_watermarks({("id-a", 0): 3, ("id-b", 0): 3})
    (segment,) = (directory.root / "a-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 1)

    again = start()
    assert own_ids(again) == {"a"}
    first = again.own_directory_ids()
    assert start().own_directory_ids() == first, "it is not lost twice"


def test_defect_01_a_deleted_or_stray_log_is_not_lost(start: Start) -> None:
    directory = start()
    written(directory, "a", "b", "c")
    directory.delete(("id-a", 0))()
    directory.to_stray(("id-b", 0))

    assert start().lost == []


def test_defect_01_a_lost_log_that_is_not_assigned_any_more_is_forgotten(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    shutil.rmtree(directory.root / "a-0")
    shutil.rmtree(directory.root / "b-0")
    again = start()

    again.forget_lost([("id-b", 0)])

    assert own_ids(start()) == {"b"}


@pytest.mark.parametrize("end", ["forgotten", "deleted", "stray"])
def test_defect_01_a_recreated_log_keeps_the_id_that_is_registered(start: Start, end: str) -> None:
    """A membership that it gains before the next start is bound to this id."""
    directory = start()
    written(directory, "a")
    shutil.rmtree(directory.root / "a-0")
    again = start()
    registered = again.own_directory_ids()
    if end == "forgotten":
        again.forget_lost([])
    else:
        written(again, "a")
        if end == "deleted":
            again.delete(("id-a", 0))()
        else:
            again.to_stray(("id-a", 0))

    written(again, "a", records=3 if end != "stray" else 0)

    assert again.own_directory_ids() == registered
    assert start().own_directory_ids() == registered


def test_defect_01_a_log_that_becomes_stray_before_its_first_sync_is_not_lost(
    start: Start,
) -> None:
    directory = start()
    directory.open("a", "id-a", 0).append(batch(0))

    directory.to_stray(("id-a", 0))

    assert start().lost == []


def test_defect_01_a_damaged_entry_counts_as_a_lost_log(start: Start) -> None:
    directory = start()
    written(directory, "a")
    (entry,) = (directory.root / "inventory").iterdir()
    flip_last_byte(entry)

    again = start()
    assert own_ids(again) == {"a"}
    first = again.own_directory_ids()
    assert start().own_directory_ids() == first, "it is not lost twice"

"""Logs that lack space or a descriptor when a log directory is opened (rules R12, R17)."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_client.errors import StorageFailed
from tests.support.services.up import until
from tests.unit.broker.log_directories import DEADLINE_S, Start, own_ids, written
from tests.unit.broker.log_support import batch, read_all


class HeldOpening:
    """An opening of logs in another thread: it has `begun`, and waits until it may `go_on`."""

    def __init__(self, directory: LogDirectory, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = Event(), Event()
        self._open_log = directory.unopened.open_log
        patch.setattr(directory.unopened, "open_log", self._wait_and_open)

    def _wait_and_open(self, *of: Any) -> PartitionLog:
        self.begun.set()
        assert self.go_on.wait(DEADLINE_S)
        return self._open_log(*of)


def test_a_log_is_opened_once_there_is_space(start: Start, short: set[str]) -> None:
    directory = start()
    written(directory, "a", "b", "c")
    directory.release()
    short |= {"a", "b"}
    again = start()
    assert own_ids(again) == {"a", "b"}
    short.remove("a")
    assert not again.unopened.open_again(), "b lacks space"
    again.take_opened()
    short.clear()
    assert again.unopened.open_again()
    with pytest.raises(StorageFailed):
        again.open("b", "id-b", 0)
    assert own_ids(again) == {"b"}, "registered, until the broker registers again"

    again.take_opened()

    assert (own_ids(again), again.unopened.has_retriable) == (set(), False)
    assert not again.unopened.open_again()
    assert all(read_all(again.open(one, f"id-{one}", 0)) for one in "abc")
    assert again.close(incarnation=1)


def test_a_log_that_is_opened_later_without_some_records_has_lost_them(
    start: Start, short: set[str]
) -> None:
    directory = start()
    written(directory, "a", "b")
    directory.checkpoint_high_watermarks({("id-a", 0): 4, ("id-b", 0): 3})
    directory.release()
    short |= {"a", "b"}
    again = start()
    short.clear()
    again.unopened.open_again()
    again.take_opened()

    assert own_ids(again) == {"a"}
    again.release()
    assert own_ids(start()) == {"a"}


def test_a_log_that_was_set_aside_meanwhile_is_not_taken_into_use(
    start: Start, short: set[str]
) -> None:
    directory = start()
    written(directory, "a")
    directory.release()
    short.add("a")
    again = start()
    short.clear()
    assert again.unopened.open_again()
    again.open("a", "another", 0).append(batch(0, b"new"))
    again.take_opened()

    assert [log.identity.topic_id for log in again.logs()] == ["another"]
    assert again.close(incarnation=1)


def test_a_log_that_has_lost_records_is_not_taken_into_use_before_that_is_noted(
    start: Start, short: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = start()
    written(directory, "a")
    directory.checkpoint_high_watermarks({("id-a", 0): 4})
    directory.release()
    short.add("a")
    again = start()
    short.clear()
    assert again.unopened.open_again()
    registered = again.own_directory_ids()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(again._inventory, "lose", refuse)
        with pytest.raises(StorageFailed):
            again.take_opened()
    assert (again.logs(), again.own_directory_ids()) == ([], registered)

    ((*_, log, high_watermark),) = again.take_opened()

    assert (log.log_end_offset, high_watermark) == (3, 3)
    assert again.own_directory_ids().keys() == registered.keys()
    assert again.own_directory_ids() != registered


def test_a_replica_that_returns_after_its_deletion_keeps_the_id_that_is_registered(
    start: Start, short: set[str]
) -> None:
    """Memberships that it gains are bound to that id."""
    directory = start()
    written(directory, "a")
    directory.release()
    short.add("a")
    again = start()
    short.clear()
    registered = again.own_directory_ids()
    again.delete(("id-a", 0))()
    written(again, "a")
    assert again.own_directory_ids() == registered
    again.release()

    assert start().own_directory_ids() == registered


@pytest.mark.parametrize("change", ["delete", "set aside"])
def test_a_log_is_left_alone_while_it_is_recovered(
    start: Start, short: set[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Its recovery would write into the directory of whatever has its name next."""
    directory = start()
    written(directory, "a")
    directory.release()
    short.add("a")
    again = start()
    short.clear()

    def attempt() -> None:
        if change == "delete":
            again.delete(("id-a", 0))()
        else:
            again.open("a", "another", 0)

    held = HeldOpening(again, monkeypatch)
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(again.unopened.open_again)
        assert held.begun.wait(DEADLINE_S)
        with pytest.raises(StorageFailed, match="being recovered"):
            attempt()
        held.go_on.set()
        assert opening.result(DEADLINE_S)
    assert again.is_unused(("id-a", 0))

    attempt()

    assert (again.take_opened(), again.is_unused(("id-a", 0))) == ([], False)
    left = {path.name for path in again.root.glob("a-0*")}
    assert left == (set() if change == "delete" else {"a-0.id-a-stray"})


def test_a_directory_is_released_when_no_log_is_being_opened_any_more(
    start: Start, short: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process would recover it at the same time."""
    directory = start()
    written(directory, "a", "b")
    directory.release()
    short |= {"a", "b"}
    again = start()
    short.clear()
    held = HeldOpening(again, monkeypatch)
    with ThreadPoolExecutor(2) as threads:
        opening = threads.submit(again.unopened.open_again)
        assert held.begun.wait(DEADLINE_S)
        releasing = threads.submit(again.release)
        until(lambda: again.unopened._is_released, "the release has begun")
        assert not releasing.done()
        held.go_on.set()
        releasing.result(DEADLINE_S)
        assert not opening.result(DEADLINE_S)

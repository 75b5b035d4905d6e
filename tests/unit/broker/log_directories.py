"""Log directories that tests start again and again, and what they hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leadline_broker.adapters.log.directory import LogDirectory
from tests.unit.broker.log_support import batch

ID_1 = "11111111-0000-0000-0000-000000000000"
ID_2 = "22222222-0000-0000-0000-000000000000"
DEADLINE_S = 20

Start = Callable[[], LogDirectory]
"""Starts broker 1 on its log directory; a former start is killed."""


def kill(running: list[LogDirectory]) -> None:
    """Release the lock as the end of the process would."""
    while running:
        running.pop().release()


def flip_last_byte(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def written(directory: LogDirectory, *topics: str, records: int = 3) -> None:
    """Append to and flush partition 0 of these topics."""
    for topic in topics:
        log = directory.open(topic, f"id-{topic}", 0)
        for offset in range(records):
            log.append(batch(offset))
        log.flush()


def own_ids(directory: LogDirectory) -> set[str]:
    """Return the topics whose replicas have a directory id of their own."""
    return {topic_id.removeprefix("id-") for topic_id, _ in directory.own_directory_ids()}

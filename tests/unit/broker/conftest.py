"""What the tests of a broker share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.errors import DiskFull, NoDescriptor
from leadline_broker.adapters.log.layout import PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from tests.unit.broker.log_directories import Start, kill


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts broker 1 on a directory; a former start is killed."""
    running: list[LogDirectory] = []

    def begin() -> LogDirectory:
        kill(running)
        running.append(LogDirectory(tmp_path / "data", cluster_id="c", broker_id=1))
        running[-1].load_all()
        return running[-1]

    yield begin
    kill(running)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The topics whose logs cannot be opened for want of space or a descriptor."""
    topics, errors = set[str](), [DiskFull("full"), NoDescriptor("none")]

    def open_log(root: Path, identity: PartitionIdentity, *rest: Any, **options: Any) -> Any:
        if identity.topic in topics:
            errors.append(errors.pop(0))
            raise errors[0]
        return PartitionLog(root, identity, *rest, **options)

    monkeypatch.setattr("leadline_broker.adapters.log.directory.PartitionLog", open_log)
    return topics

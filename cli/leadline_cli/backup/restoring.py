"""Restores a cluster from a backup and the logs of its brokers, while no service runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from leadline_broker.adapters.log.survey import FORMAT, LogSurvey, survey_logs
from leadline_cli.backup.archive import Manifest, Node, UnusableBackup, read_archive
from leadline_cli.backup.restored_nodes import Choices, RestoredNodes, restored_nodes
from leadline_cli.backup.writing import write_cluster
from leadline_cli.files import replacement
from leadline_common import znodes
from leadline_common.cause import new_cause
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.znodes import AuditEntry
from leadline_controller.adapters.history.copies import newest_entry
from leadline_controller.domain.history import CLUSTER_RESTORED

HISTORY: Final = "history.db"
_AUDIT_MARGIN: Final = 10_000
"""More audit entries than there can be that no given history has."""

_survey_format = msgspec.json.Decoder(LogSurvey)


class UnusableSurvey(ValueError):
    """The file is no survey of a broker's logs."""


class RestoreReport(msgspec.Struct, frozen=True):
    """What was restored, or would be.

    `backup_time` is in Unix ms. `new_topics` are known from logs alone; `left_out` counts nodes of
    what was ordered when the backup was made, by parent; `histories` are the files put back.
    """

    cluster_id: str
    release: str
    backup_time: int
    nodes: int
    topics: int
    partitions: int
    new_topics: tuple[str, ...]
    left_out: Mapping[str, int]
    histories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """What to restore from.

    `logs` are log directories of brokers, or surveys of them; `histories` those that controllers
    have now. A history in the backup whose controller has none is put back below `data_dir`.
    """

    backup: Path
    logs: Sequence[Path]
    histories: Sequence[Path] = ()
    data_dir: Path | None = None
    choices: Choices = field(default_factory=Choices)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A restore that has been decided, and nothing written yet."""

    manifest: Manifest
    restored: RestoredNodes
    first_audit_id: int
    missing_histories: Mapping[Path, Path]
    """The copy to put back, by its place."""

    @property
    def report(self) -> RestoreReport:
        """What it restores."""
        topics, quiet = self.restored.topics, (znodes.AUDIT, znodes.AUDIT_READERS)
        return RestoreReport(
            self.manifest.cluster_id,
            self.manifest.release,
            self.manifest.time,
            len(self.restored.nodes),
            len(topics),
            sum(len(topic.states) for topic in topics.values()),
            tuple(name for name, topic in topics.items() if topic.new),
            {path: n for path, n in sorted(self.restored.left_out.items()) if path not in quiet},
            tuple(str(path) for path in self.missing_histories),
        )

    def write(self, zookeeper: str, credentials: ZkCredentials | None) -> None:
        """Write the nodes and the histories that are missing.

        Raises:
            NotEmpty: ZooKeeper has a cluster, or a service runs; nothing was changed.
            Unfinished: the connection was lost while nodes were written: run it again.
            ZkError: no server answers, or the connection was lost before.
            OSError: a history cannot be written.

        """
        entry = AuditEntry(
            time.time_ns() // 1_000_000,
            new_cause(),
            "operator",
            CLUSTER_RESTORED,
            reason="from a backup and the brokers' logs",
            after=msgspec.to_builtins(self.report),
        )
        restored, first = self.restored, self.first_audit_id
        asyncio.run(
            write_cluster(zookeeper, credentials, restored, first, entry, self._put_back_histories)
        )

    def _put_back_histories(self) -> None:
        for place, copy in self.missing_histories.items():
            put_back(copy, place)


def put_back(copy: Path, place: Path) -> None:
    """Copy a history to its place, where it appears whole or not at all, and alone.

    A restore that is interrupted and run again keeps what it finds there.

    Raises:
        OSError: the copy cannot be read, or the place not written.

    """
    place.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("-wal", "-shm"):  # SQLite would apply what the lost file has left to the copy.
        place.with_name(place.name + suffix).unlink(missing_ok=True)
    with replacement(place) as draft, copy.open("rb") as content, draft.open("wb") as file:
        shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(file.fileno())


def prepare_restore(sources: Sources, workspace: Path) -> Prepared:
    """Read the backup and all logs, and decide; histories are unpacked into `workspace`.

    Raises:
        UnusableBackup, UnusableSurvey, UnreadableHistory: a file cannot be used.
        NotRecoverable: the logs do not tell what to begin with; the message says what to do.
        WrongDirectory, CorruptFile: a log directory cannot be used, or a broker uses it.
        OSError: a file cannot be read.

    """
    manifest, nodes, copies = read_archive(sources.backup, workspace)
    surveys = [_survey(path) for path in sources.logs]
    now_ms = time.time_ns() // 1_000_000
    restored = restored_nodes(nodes, surveys, sources.choices, now_ms)
    newest = [newest_entry(path) for path in (*sources.histories, *copies.values())]
    missing = {} if sources.data_dir is None else missing_histories(copies, sources.data_dir)
    return Prepared(manifest, restored, _first_audit_id(newest, nodes), missing)


def write_survey(log_directory: Path, file: Path) -> LogSurvey:
    """Write what a log directory holds to a file, which `prepare_restore` takes in its place.

    Raises:
        WrongDirectory, CorruptFile: the directory cannot be used, or a broker uses it.
        OSError: the directory cannot be read, or the file not written.

    """
    survey = survey_logs(log_directory)
    file.write_bytes(msgspec.json.encode(survey))
    return survey


def _survey(path: Path) -> LogSurvey:
    if path.is_dir():
        return survey_logs(path)
    try:
        survey = _survey_format.decode(path.read_bytes())
    except msgspec.MsgspecError as problem:
        raise UnusableSurvey(f"{path} is no survey of a broker's logs: {problem}") from None
    if survey.format != FORMAT:
        raise UnusableSurvey(f"{path} has a format that this release does not know")
    return survey


def missing_histories(copies: Mapping[str, Path], data_dir: Path) -> dict[Path, Path]:
    """Return the places below a data directory that lack a history, and the copy for each.

    `copies` are by the path that they were copied from.

    Raises:
        UnusableBackup: such a path names no directory.

    """
    places = {data_dir / _directory_of(source) / HISTORY: copy for source, copy in copies.items()}
    return {place: copy for place, copy in places.items() if not place.exists()}


def _directory_of(source: str) -> str:
    name = Path(source).parent.name
    if name in ("", ".."):
        raise UnusableBackup(f"the backup has a history of {source!r}, which names no controller")
    return name


def _first_audit_id(newest: Sequence[int], nodes: Sequence[Node]) -> int:
    """Return an id above those of all entries that any history has, or may get from another."""
    entries = (node.path for node in nodes if node.path.startswith(znodes.AUDIT_ENTRY_PREFIX))
    return max([*newest, *map(znodes.audit_id, entries), -1]) + 1 + _AUDIT_MARGIN

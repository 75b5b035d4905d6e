"""The files in the root of a broker's log directory: its owner, lock and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import msgspec
import structlog

from leadline_broker.adapters.log.checked_files import (
    fsync_path,
    read_checked,
    read_small,
    replace_file,
    write_checked,
)
from leadline_broker.adapters.log.errors import CorruptFile, WrongDirectory
from leadline_broker.domain.state import ReplicaKey
from leadline_client.file_lock import FileLock, FileLockHeld

logger = structlog.get_logger(__name__)

LOCK_FILE = ".lock"
META_FILE = "meta.json"
CLEAN_SHUTDOWN_FILE = "clean-shutdown"
CONTROLLER_EPOCH_FILE = "controller-epoch"
DIRECTORY_VERSION_FILE = "directory-version"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
_VERSION = 1

HighWatermarks = Mapping[ReplicaKey, int]
"""High watermarks by (topic id, partition)."""


class Owner(msgspec.Struct, frozen=True):
    """Content of ``meta.json``; without a directory id it is from before there were any."""

    cluster_id: str
    broker_id: int
    directory_id: str = ""
    version: int = _VERSION


_owner = msgspec.json.Decoder(Owner)


def lock_root(root: Path) -> FileLock:
    """Lock the directory for this process.

    Raises:
        WrongDirectory: another process holds the lock.

    """
    try:
        return FileLock.acquire(root / LOCK_FILE, blocking=False)
    except FileLockHeld as error:
        raise WrongDirectory(f"{root} is in use by another process") from error


def claim(root: Path, cluster_id: str, broker_id: int) -> tuple[str, bool]:
    """Write the owner of the directory, or check it; return its id, and whether that is new.

    A directory without an id gets a new one, even if it holds logs: nothing tells that these are
    the ones that a membership was gained with (rule R17).

    Raises:
        WrongDirectory: the directory belongs to another cluster or broker.

    """
    owner = Owner(cluster_id, broker_id)
    try:
        owner = _decode_owner(root)
    except FileNotFoundError:
        if any(root.glob("*-*")):
            logger.warning("log directory with logs but without an id gets a new one")
    if (owner.cluster_id, owner.broker_id) != (cluster_id, broker_id):
        raise WrongDirectory(
            f"{root} belongs to broker {owner.broker_id} of cluster {owner.cluster_id},"
            f" not to broker {broker_id} of cluster {cluster_id}: give another log.dir; or, if"
            " ZooKeeper has lost its data, restore it (`leadline cluster restore`)"
        )
    if owner.directory_id:
        return owner.directory_id, False
    return _write_new_id(root, owner), True


def give_new_id(root: Path) -> str:
    """Replace the id of a directory that has one, durably; return the new one."""
    return _write_new_id(root, _decode_owner(root))


def _write_new_id(root: Path, owner: Owner) -> str:
    owner = msgspec.structs.replace(owner, directory_id=uuid4().hex)
    replace_file(root / META_FILE, msgspec.json.encode(owner))
    fsync_path(root)
    return owner.directory_id


def read_owner(root: Path) -> Owner:
    """Return whose log directory this is.

    Raises:
        WrongDirectory: it is none of a broker's, or was made by a release without directory ids.

    """
    try:
        owner = _decode_owner(root)
    except OSError as error:
        raise WrongDirectory(f"{root} is no log directory: it has no {META_FILE}") from error
    if not owner.directory_id:
        raise WrongDirectory(f"{root / META_FILE} names no directory: start its broker once")
    return owner


def _decode_owner(root: Path) -> Owner:
    """Read whose directory this is.

    Raises:
        FileNotFoundError: nobody has claimed it.
        WrongDirectory: the file is damaged, or of a release that lays out its files differently:
            this one would take them for damaged, set them aside, and delete them later.

    """
    path = root / META_FILE
    try:
        owner = _owner.decode(read_small(path))
    except (CorruptFile, msgspec.MsgspecError) as error:
        raise WrongDirectory(
            f"{path} is damaged: put back a copy of it; or give an empty log.dir, and the broker "
            "copies its replicas from the others"
        ) from error
    if owner.version != _VERSION:
        raise WrongDirectory(
            f"{path} has version {owner.version}, and this release knows {_VERSION}: start a "
            "release that knows it, or give another log.dir"
        )
    return owner


def take_clean_shutdown(root: Path) -> int | None:
    """Return the incarnation that shut down cleanly, and remove the marker durably.

    The result is None if the last stop was not clean.
    """
    path = root / CLEAN_SHUTDOWN_FILE
    try:
        incarnation = int(read_checked(path, CLEAN_SHUTDOWN_FILE))
    except FileNotFoundError:
        return None
    except CorruptFile:
        incarnation = None
    path.unlink()
    fsync_path(root)
    return incarnation


def write_clean_shutdown(root: Path, incarnation: int) -> None:
    """Write the marker: this incarnation has flushed and closed all logs."""
    _write_durably(root, CLEAN_SHUTDOWN_FILE, b"%d" % incarnation)


def read_controller_epoch(root: Path) -> int:
    """Return the highest controller epoch that this broker has accepted, 0 if none.

    Raises:
        CorruptFile: the file is damaged. Without it this broker might accept commands of a
            former controller (rule R11).

    """
    try:
        return int(read_checked(root / CONTROLLER_EPOCH_FILE, CONTROLLER_EPOCH_FILE))
    except FileNotFoundError:
        return 0


def write_controller_epoch(root: Path, epoch: int) -> None:
    """Write the highest accepted controller epoch durably."""
    _write_durably(root, CONTROLLER_EPOCH_FILE, b"%d" % epoch)


def read_directory_version(root: Path) -> int:
    """Return the version of the directory, 0 if it has none yet (rule R17).

    Raises:
        CorruptFile: the file is damaged; whether the directory is an older copy is not known.

    """
    try:
        return int(read_checked(root / DIRECTORY_VERSION_FILE, DIRECTORY_VERSION_FILE))
    except FileNotFoundError:
        return 0
    except CorruptFile as error:
        raise CorruptFile(
            f"{root / DIRECTORY_VERSION_FILE} is damaged: put back what it had; or remove it, and "
            "the directory counts as an older copy, whose replicas follow the others"
        ) from error


def write_directory_version(root: Path, version: int) -> None:
    """Write the version of the directory durably."""
    _write_durably(root, DIRECTORY_VERSION_FILE, b"%d" % version)


def read_high_watermarks(root: Path) -> dict[ReplicaKey, int]:
    """Return the checkpointed high watermarks; empty if the file is missing.

    Raises:
        CorruptFile: the file is damaged.

    """
    try:
        body = read_checked(root / HIGH_WATERMARK_FILE, HIGH_WATERMARK_FILE)
    except FileNotFoundError:
        return {}
    rows = (line.split() for line in body.decode().splitlines())
    return {(topic_id, int(partition)): int(offset) for topic_id, partition, offset in rows}


def write_high_watermarks(root: Path, high_watermarks: HighWatermarks) -> None:
    """Replace the checkpoint of all high watermarks."""
    body = "".join(
        f"{topic_id} {partition} {offset}\n"
        for (topic_id, partition), offset in high_watermarks.items()
    )
    _write_durably(root, HIGH_WATERMARK_FILE, body.encode())


def _write_durably(root: Path, name: str, body: bytes) -> None:
    """Replace a checked file whose kind is its name."""
    write_checked(root / name, name, body)
    fsync_path(root)

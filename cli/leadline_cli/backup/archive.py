"""The file of a backup: a compressed tar with a manifest, the nodes, and the histories.

    manifest.json      what the rest is, with SHA-256 of each member
    zookeeper.ndjson   one node a line, parents before children
    history-0.db …     a copy of each SQLite history

The file has hashes of tokens and all other state of the cluster, so only its owner can read it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

import msgspec

from leadline_cli.backup.workspace import workspace

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
NODES: Final = "zookeeper.ndjson"
_OWNER_ONLY: Final = 0o600
_CHUNK: Final = 1 << 20
_MAX_MANIFEST: Final = 1 << 24


class UnusableBackup(ValueError):
    """The file is no backup, is damaged, or has a format that this release does not know."""


class Node(msgspec.Struct, frozen=True):
    """A persistent node: its path below the cluster's root, its data and its data version."""

    path: str
    data: bytes
    version: int


_node = msgspec.json.Decoder(Node)


class Member(msgspec.Struct, frozen=True):
    """A member of the file. `source` is the path that a history was copied from."""

    name: str
    size: int
    sha256: str
    source: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """What a backup has. `time` is when reading began, Unix ms; `nodes` counts the nodes."""

    cluster_id: str
    release: str
    oldest_protocol: int
    newest_protocol: int
    time: int
    nodes: int
    members: tuple[Member, ...]
    format: int = FORMAT

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


def encode_nodes(nodes: Iterable[Node]) -> bytes:
    """Encode nodes, one a line; the inverse of `decode_nodes`."""
    return b"".join(msgspec.json.encode(node) + b"\n" for node in nodes)


def decode_nodes(data: bytes) -> list[Node]:
    """Decode nodes.

    Raises:
        UnusableBackup: a line is no node, or a node comes before its parent.

    """
    try:
        nodes = [_node.decode(line) for line in data.splitlines()]
    except msgspec.MsgspecError as problem:
        raise UnusableBackup(f"{NODES} has a line that is no node: {problem}") from None
    seen = {"/"}
    for node in nodes:
        if str(PurePosixPath(node.path).parent) not in seen or node.path in seen:
            raise UnusableBackup(f"{NODES} has {node.path} twice, or before its parent")
        seen.add(node.path)
    return nodes


def member_of(name: str, content: IO[bytes], source: str = "") -> Member:
    """Describe what can be read from `content`."""
    digest, size = hashlib.sha256(), 0
    while chunk := content.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return Member(name, size, digest.hexdigest(), source)


def write_archive(
    path: Path, manifest: Manifest, nodes: bytes, histories: Sequence[tuple[str, Path]]
) -> None:
    """Write a backup; the file appears whole or not at all, and is durable when this returns.

    Of several that are written to one path at a time, the last one to end stays. `histories` are
    the names of members and the files to copy.

    Raises:
        OSError: a file cannot be read or written. Nothing is left behind.

    """
    with workspace(path.absolute().parent) as directory:  # overlapping backups have one each
        draft = directory / "draft"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        with _named(path), os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as tar:
                _add(tar, MANIFEST, msgspec.json.encode(manifest))
                _add(tar, NODES, nodes)
                for name, source in histories:
                    tar.add(source, arcname=name, recursive=False)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    _sync_directory(path.absolute().parent)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add the name of a file to errors of its descriptor, which lack it."""
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or str(path)
        raise


def check_archive(path: Path) -> Manifest:
    """Read a whole backup and compare it with its manifest.

    Raises:
        UnusableBackup: it is damaged or incomplete, or has another format.
        OSError: the file cannot be read.

    """
    try:
        with gzip.open(path) as plain, tarfile.open(fileobj=plain, mode="r:") as tar:
            manifest = _read_manifest(tar)
            _check_members(tar, manifest)
            # To its end, after that of the tar: there is the checksum of the compressed stream.
            while plain.read(_CHUNK):
                pass
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as problem:
        raise UnusableBackup(f"{path}: {problem}") from None
    except OSError as problem:
        if problem.errno is None:  # gzip's own error, not that of a system call
            raise UnusableBackup(f"{path}: {problem}") from None
        raise
    return manifest


def _read_manifest(tar: tarfile.TarFile) -> Manifest:
    first = tar.next()
    if first is None or first.name != MANIFEST or first.size > _MAX_MANIFEST:
        raise UnusableBackup(f"it does not begin with {MANIFEST}, so it is no backup")
    body = _content(tar, first).read()
    stated = msgspec.json.decode(body)
    if not isinstance(stated, dict) or stated.get("format") != FORMAT:
        raise UnusableBackup("its format is not known to this release")
    return msgspec.convert(stated, Manifest)


def _check_members(tar: tarfile.TarFile, manifest: Manifest) -> None:
    expected = {member.name: member for member in manifest.members}
    while (entry := tar.next()) is not None:
        member = expected.pop(entry.name, None)
        if member is None:
            raise UnusableBackup(f"{entry.name} is not in its manifest, or is there twice")
        found = member_of(entry.name, _content(tar, entry), member.source)
        if found != member:
            raise UnusableBackup(f"{entry.name} is damaged: its checksum differs")
        if entry.name == NODES and len(decode_nodes(_content(tar, entry).read())) != manifest.nodes:
            raise UnusableBackup(f"{NODES} has not the {manifest.nodes} nodes of the manifest")
    if expected:
        raise UnusableBackup(f"it lacks {', '.join(sorted(expected))}")


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(entry) if entry.isreg() else None
    if content is None:
        raise UnusableBackup(f"{entry.name} is no file")
    return content


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), _OWNER_ONLY
    tar.addfile(entry, io.BytesIO(content))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_archive(path: Path, directory: Path) -> tuple[Manifest, list[Node], dict[str, Path]]:
    """Return the manifest, the nodes, and the histories of a backup, copied into `directory`.

    The histories are by the path that they were copied from.

    Raises:
        UnusableBackup: it is damaged or incomplete, or has another format.
        OSError: the file cannot be read, or a history not written.

    """
    manifest = check_archive(path)
    nodes: list[Node] = []
    histories = {}
    with tarfile.open(path, mode="r:gz") as tar:
        for place, member in enumerate(manifest.members):
            content = _content(tar, tar.getmember(member.name))
            if member.name == NODES:
                nodes = decode_nodes(content.read())
                continue
            copy = directory / f"{place}.db"
            with copy.open("wb") as file:
                shutil.copyfileobj(content, file)
            histories[member.source] = copy
    return manifest, nodes, histories

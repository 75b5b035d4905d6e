"""The file of a backup, and `leadline cluster backup --check`."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from leadline_cli.backup.archive import (
    MANIFEST,
    NODES,
    Manifest,
    Node,
    UnusableBackup,
    check_archive,
    decode_nodes,
    encode_nodes,
    member_of,
    write_archive,
)
from leadline_cli.main import app

TREE = [Node("/cluster", b"", 0), Node("/cluster/id", b"secret-\xff\n", 3), Node("/b", b"{}", 7)]


def made(directory: Path, **changes: object) -> Path:
    path, history = directory / "cluster.backup", directory / "history.db"
    history.write_bytes(b"rows" * 1000)
    body = encode_nodes(TREE)
    members = (
        member_of(NODES, io.BytesIO(body)),
        member_of("history-0.db", io.BytesIO(history.read_bytes()), "/elsewhere/history.db"),
    )
    manifest = Manifest("a-cluster", "1.2.3", 1, 1, 5, len(TREE), members)
    manifest = msgspec.structs.replace(manifest, **changes)
    write_archive(path, manifest, body, [("history-0.db", history)])
    return path


def rewritten(path: Path, edit: dict[str, bytes | None]) -> Path:
    """Replace members, or leave out those that are None."""
    with tarfile.open(path) as tar:
        files = {one.name: tar.extractfile(one) for one in tar}
        rows = {name: file.read() if file else None for name, file in files.items()}
    with tarfile.open(path, "w:gz") as tar:
        for name, content in (rows | edit).items():
            if content is not None:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return path


class PausedHistories(list[tuple[str, Path]]):
    """Histories, the first of which comes after `pause()`."""

    def __init__(self, rows: list[tuple[str, Path]], pause: Callable[[], object]) -> None:
        super().__init__(rows)
        self._pause = pause

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        self._pause()
        return super().__iter__()


def test_backups_that_overlap_do_not_spoil_each_other(tmp_path: Path) -> None:
    """As if a timer had started a backup before the previous one ended."""
    path, rows = made(tmp_path), [("history-0.db", tmp_path / "history.db")]
    manifest, body = check_archive(path), encode_nodes(TREE)
    begun, go_on = Event(), Event()

    def pause() -> None:
        begun.set()
        assert go_on.wait(10)

    with ThreadPoolExecutor(1) as pool:
        later: list[Future[None]] = []

        def start_another() -> None:
            histories = PausedHistories(rows, pause)
            later.append(pool.submit(write_archive, path, manifest, body, histories))
            assert begun.wait(10)

        write_archive(path, manifest, body, PausedHistories(rows, start_another))
        assert check_archive(path) == manifest
        go_on.set()
        later[0].result()
    assert check_archive(path) == manifest
    assert sorted(one.name for one in tmp_path.iterdir()) == ["cluster.backup", "history.db"]


names = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(names.filter(lambda name: name not in (".", "..")), st.binary()))
def test_any_data_and_name_comes_back(nodes: dict[str, bytes]) -> None:
    listed = [Node(f"/{name}", data, 1) for name, data in nodes.items()]
    assert decode_nodes(encode_nodes(listed)) == listed


def test_a_whole_backup_is_read_and_only_its_owner_can(tmp_path: Path) -> None:
    path = made(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert check_archive(path).cluster_id == "a-cluster"
    ended = CliRunner().invoke(app, ["cluster", "backup", str(path), "--check"])
    assert (ended.exit_code, "3 nodes, 1 history" in ended.stdout) == (0, True), ended.output
    assert "secret" not in ended.output


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({NODES: encode_nodes(TREE[:2])}, "checksum"),
        ({"history-0.db": b"rows"}, "checksum"),
        ({"history-0.db": None}, "lacks history-0.db"),
        ({"more": b""}, "not in its manifest"),
        ({MANIFEST: None}, "no backup"),
        ({MANIFEST: b'{"format": 2}'}, "format"),
        ({MANIFEST: b"{}"}, "format"),
        ({MANIFEST: b'{"format": 1}'}, "missing required field"),
    ],
)
def test_a_backup_that_was_changed_is_refused(
    edit: dict[str, bytes | None], said: str, tmp_path: Path
) -> None:
    path = rewritten(made(tmp_path), edit)
    with pytest.raises(UnusableBackup, match=said):
        check_archive(path)
    assert CliRunner().invoke(app, ["cluster", "backup", str(path), "--check"]).exit_code == 1


def test_every_backup_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(UnusableBackup):
            check_archive(path)


def test_a_count_of_nodes_that_is_not_theirs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableBackup, match="has not the 9 nodes"):
        check_archive(made(tmp_path, nodes=9))


@pytest.mark.parametrize(
    "lines", [b"{}\n", b"no\n", encode_nodes([TREE[1]]), encode_nodes([TREE[0], TREE[0]])]
)
def test_nodes_without_their_parents_are_refused(lines: bytes) -> None:
    with pytest.raises(UnusableBackup):
        decode_nodes(lines)


def test_a_backup_that_fails_leaves_the_former_one(tmp_path: Path) -> None:
    path = made(tmp_path)
    before = path.read_bytes()
    manifest = check_archive(path)
    with pytest.raises(FileNotFoundError):
        write_archive(path, manifest, b"", [("history-0.db", tmp_path / "gone.db")])
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["cluster.backup", "history.db"]


def test_a_full_disk_names_the_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("leadline_cli.backup.archive.os.fsync", full)
    with pytest.raises(OSError, match="No space left") as failed:
        made(tmp_path)
    assert failed.value.filename == str(tmp_path / "cluster.backup")

"""A ZooKeeper server that replaces the process that starts it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadline_cli.embedded_zookeeper import run_in_place


class Replaced(Exception):
    """The process would be the server now."""


def replaced(command: str, arguments: list[str], environment: dict[str, str]) -> None:
    assert arguments == [command]
    assert environment["LC_ALL"] == "C.UTF-8"
    raise Replaced


@pytest.mark.parametrize(("free", "full"), [(0, True), (1 << 40, False)])
def test_a_full_disk_is_named_before_the_server_ends_on_it(
    *,
    free: int,
    full: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """On a host, nothing named the reason: the server's own log is on the full disk."""
    usage = SimpleNamespace(total=1 << 40, used=(1 << 40) - free, free=free)
    monkeypatch.setattr("leadline_cli.disk_space.shutil.disk_usage", lambda _: usage)
    monkeypatch.setattr(os, "execve", replaced)
    with pytest.raises(Replaced):
        run_in_place(tmp_path, ["server"])
    assert capfd.readouterr().err.startswith(f"the disk of {tmp_path} is full") == full

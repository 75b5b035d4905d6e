"""Brokers on file systems of their own, which can fill up or lose power. It takes root.

A power cut is real: the file system is shut down without a flush (EXT4_IOC_SHUTDOWN), as xfstests
do it, so that what was not synced is gone when it is mounted again.

A disk that hangs is real, too: its image is a file of another file system, which is frozen. So
nothing reaches the disk, no fsync ends, and none fails.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.faults.observer import Observer
from tests.support.services.cluster import Cluster

_SHUTDOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN, `_IOR('X', 125, __u32)`."""
_NO_FLUSH: Final = struct.pack("I", 2)
_FREEZE: Final = 0xC0045877
"""FIFREEZE, `_IOWR('X', 119, int)`."""
_THAW: Final = 0xC0045878
"""FITHAW, `_IOWR('X', 120, int)`."""
_MIB: Final = 1 << 20


def why_not() -> str | None:
    """Say why this machine cannot mount file systems for a test; None if it can."""
    if os.geteuid() != 0:
        return "file systems of a test's own need root"
    missing = [name for name in ("mount", "umount", "mkfs.ext4") if shutil.which(name) is None]
    if missing:
        return f"file systems of a test's own need {' and '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], check=False
    )
    return None if tried.returncode == 0 else "this machine permits no mounts"


def why_no_power_cuts() -> str | None:
    """Say why this machine cannot mount an image in a file; None if it can."""
    if reason := why_not():
        return reason
    loops = any(Path("/dev").glob("loop*"))
    return None if loops else "power cuts need loop devices"


@dataclass(frozen=True)
class Disk:
    """The file system of one broker's log directory: in memory, or an ext4 in an image.

    The image may be the only file of a file system of its own, `host`, so that the disk can hang.
    """

    directory: Path
    size_bytes: int
    image: Path | None = None
    host: Path | None = None

    def make(self) -> None:
        """Move what is in the directory to a new file system that is mounted there."""
        kept = self.directory.with_name(f"{self.directory.name}.before")
        shutil.copytree(self.directory, kept)
        if self.host is not None:
            self.host.mkdir()
            outer = self.host.with_suffix(".ext4")
            _make_ext4(outer, 2 * self.size_bytes)
            _run("mount", "-o", "loop", str(outer), str(self.host))
        if self.image is not None:
            _make_ext4(self.image, self.size_bytes)
        self.mount()
        shutil.rmtree(self.directory / "lost+found", ignore_errors=True)
        shutil.copytree(kept, self.directory, dirs_exist_ok=True)
        os.sync()

    def mount(self) -> None:
        """Mount it."""
        if self.image is None:
            size = f"size={self.size_bytes}"
            _run("mount", "-t", "tmpfs", "-o", size, "none", str(self.directory))
        else:
            _run("mount", "-o", "loop", str(self.image), str(self.directory))

    def unmount(self) -> None:
        """Unmount it, whoever has files of it open."""
        _run("umount", "-l", str(self.directory))
        if self.host is not None:
            _run("umount", "-l", str(self.host))

    def hang(self) -> None:
        """Answer nothing any more, until `go_on`."""
        self._tell_host(_FREEZE)

    def go_on(self) -> None:
        """Undo `hang`, if it hangs."""
        with suppress(OSError):  # EINVAL: it does not hang
            self._tell_host(_THAW)

    def _tell_host(self, order: int) -> None:
        assert self.host is not None, "this disk cannot hang"
        directory = os.open(self.host, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, order, 0)
        finally:
            os.close(directory)

    def lose_power(self) -> None:
        """Lose everything that was not synced; nothing can be written any more."""
        witness = self.directory / "witness"
        witness.write_bytes(b"never synced")
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _SHUTDOWN, _NO_FLUSH)
        finally:
            os.close(directory)

    def become_read_only(self) -> None:
        """Take no writes any more, as an ext4 does by itself after an error; see `mount_again`."""
        _run("mount", "-o", "remount,errors=remount-ro", str(self.directory))
        _trigger_of(self.directory).write_text("test")

    def mount_again(self) -> None:
        """Mount it after `become_read_only`, when no process uses it."""
        _run("umount", str(self.directory))
        self.mount()

    def come_back(self) -> None:
        """Mount it again after `lose_power`; fail if it has lost nothing."""
        self.mount_again()
        assert not (self.directory / "witness").exists(), "void: the power cut lost nothing"

    def fill(self) -> None:
        """Leave no room at all."""
        block = bytes(_MIB)
        with self._ballast.open("wb", buffering=0) as file:
            while block:
                try:
                    file.write(block)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    block = block[: len(block) // 2]

    def free(self) -> None:
        """Undo `fill`."""
        self._ballast.unlink()

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast.tmp"


@asynccontextmanager
async def own_disks(
    cluster: Cluster,
    names: Sequence[str],
    size_bytes: int,
    *,
    ext4: bool = False,
    can_hang: bool = False,
) -> AsyncIterator[dict[str, Disk]]:
    """Give brokers disks of their own, before there is any topic; take them away on exit."""
    disks: dict[str, Disk] = {}
    try:
        for name in names:
            log_dir = cluster.service(name).log_dir
            assert log_dir is not None
            host = cluster.data_dir / f"{name}.host" if can_hang else None
            place = (host or cluster.data_dir) / f"{name}.ext4"
            image = place if ext4 or can_hang else None
            disk = Disk(Path(log_dir), size_bytes, image, host)
            assert await cluster.terminate(name) == 0
            disk.make()
            disks[name] = disk
            cluster.restart(name)
        await asyncio.gather(*(cluster.until_ready(name) for name in names))
        yield disks
    finally:
        for name, disk in disks.items():
            await cluster.kill(name)
            disk.unmount()


async def cut_power(cluster: Cluster, observer: Observer, disks: dict[str, Disk]) -> None:
    """Cut the power of brokers, all at one moment; their disks come back, but no process."""
    for name in disks:
        cluster.pause(name)  # so that none acts on what the disk of another one has lost
    async with observer.looking:
        for name, disk in disks.items():
            cluster.note("power cut", name)
            disk.lose_power()
        for name in disks:
            child = cluster.child(name)
            await child.kill()
            assert child.exit_code == -signal.SIGKILL
        for disk in disks.values():
            await asyncio.to_thread(disk.come_back)


def _trigger_of(directory: Path) -> Path:
    """Return the file that tells the ext4 of a directory that it has an error."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    device = next(source for source, place, *_ in mounts if place == str(directory))
    return Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"


def _make_ext4(image: Path, size_bytes: int) -> None:
    with image.open("wb") as file:
        file.truncate(size_bytes)
    _run("mkfs.ext4", "-q", "-F", str(image))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")

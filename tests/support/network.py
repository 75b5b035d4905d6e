"""Hosts with an address each on one machine: network namespaces, joined by a bridge.

Nothing leaves them but for the test itself, which has an address in their network. It takes root
and the command `ip`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_PREFIX: Final = "llt"
_OWN: Final = 254


def why_not() -> str | None:
    """Say why this machine cannot have such hosts; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (package iproute2)"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "this machine permits no network namespaces"


@dataclass(frozen=True)
class Network:
    """Namespaces of `hosts`, on entry; they are removed on exit.

    Host number i (from 1) has the address `subnet`.i, this process's namespace `subnet`.254.
    """

    hosts: Sequence[str]

    @property
    def subnet(self) -> str:
        """The first three numbers of all addresses, of the range for tests of networks."""
        return f"198.18.{os.getpid() % 256}"

    def address_of(self, host: str) -> str:
        """Return the address of a host."""
        return f"{self.subnet}.{self.hosts.index(host) + 1}"

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """Return a command that runs another one on a host."""
        return ["ip", "netns", "exec", self._name(host), *command]

    def cut_off(self, host: str) -> None:
        """Let nothing through to a host, nor from it; nobody is told."""
        _ip("-n", self._name("net"), "link", "set", "dev", host, "down")

    def reconnect(self, host: str) -> None:
        """Undo `cut_off`."""
        _ip("-n", self._name("net"), "link", "set", "dev", host, "up")

    def __enter__(self) -> Self:
        _remove_those_of_the_dead()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _make(self) -> None:
        switch = self._name("net")
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "dev", "switch", "up")
        for host in self.hosts:
            name = self._name(host)
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "dev", "lo", "up")
            plug = ("type", "veth", "peer", "name", host, "netns", switch)
            _ip("-n", name, "link", "add", "eth0", *plug)
            self._plug_in(host)
            _ip("-n", name, "addr", "add", f"{self.address_of(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "dev", "eth0", "up")
        own = self._name("t")
        _ip("link", "add", own, "type", "veth", "peer", "name", "test", "netns", switch)
        self._plug_in("test")
        _ip("addr", "add", f"{self.subnet}.{_OWN}/24", "dev", own)
        _ip("link", "set", "dev", own, "up")

    def _plug_in(self, end: str) -> None:
        _ip("-n", self._name("net"), "link", "set", "dev", end, "master", "switch", "up")

    def _remove(self) -> None:
        # The other ends of its links go with the namespace.
        for name in ("net", *self.hosts):
            _ip("netns", "del", self._name(name), must=False)

    @staticmethod
    def _name(host: str) -> str:
        return f"{_PREFIX}{os.getpid()}{host}"


def _remove_those_of_the_dead() -> None:
    """Remove what tests that were killed have left behind."""
    for namespace in Path("/run/netns").glob(f"{_PREFIX}*"):
        owner = "".join(filter(str.isdigit, namespace.name))
        if not Path(f"/proc/{owner}").exists():
            _ip("netns", "del", namespace.name, must=False)


def _ip(*arguments: str, must: bool = True) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if must and done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

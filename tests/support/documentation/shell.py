"""A person at a terminal who types the commands of a page, one after another."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.documentation.blocks import ROOT, without_comment

DEADLINE_S = 900.0
"""Starting Spark takes seconds, and minutes where many programs share two cores."""
_ASSIGNS = re.compile(r"(export\s+)?\w+=")
_DEFINES = re.compile(r"\w+\(\)|source ")
_NAMES = re.compile(r"(?:^|\s)(\w+)=")
_MARK = "=== kept"
# curl alone succeeds with every answer that it gets, whatever the answer's status.
_START = 'curl() { command curl --fail-with-body "$@"; }\n'


class CommandFailed(AssertionError):
    """A documented command failed; the message has the command and what it printed."""


@dataclass
class Terminal:
    """Runs commands in `folder`; variables and activations stay for the following commands.

    `replaced` are the parts of commands that a reader would replace, such as an address.
    """

    folder: Path
    replaced: dict[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    kept: str = _START

    def __post_init__(self) -> None:
        link = self.folder / ".venv"
        if not link.exists():
            link.symlink_to(ROOT / ".venv")

    def run(self, command: str, *, expected: tuple[int, ...] = (0,)) -> str:
        """Run a command until it ends, and return what it printed.

        Raises:
            CommandFailed: it ended with another exit code than those expected.

        """
        text = self.text_of(command)
        assigned = _NAMES.findall(text) if _ASSIGNS.match(text) else []
        showing = f"\necho '{_MARK}'; declare -p {' '.join(assigned)}" if assigned else ""
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail\n{self.kept}{text}{showing}"],
            cwd=self.folder,
            env=self.all_variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=DEADLINE_S,
            check=False,
        )
        if done.returncode not in expected:
            raise CommandFailed(f"{text}\nended with {done.returncode}:\n{done.stdout}")
        printed, _, values = done.stdout.partition(f"{_MARK}\n")
        self.kept += values or (f"{text}\n" if _DEFINES.match(text) else "")
        return printed

    def interrupt(self, command: str, during: Callable[[], None]) -> None:
        """Run a command in a terminal until it has printed anything, and `during`; then Ctrl-C."""
        running = Running(self, command)
        try:
            running.wait_for()
            during()
        finally:
            running.interrupt()

    def text_of(self, command: str) -> str:
        """Return a command without its comment, and with the parts replaced."""
        text = without_comment(command) if "\n" not in command else command
        for shown, actual in self.replaced.items():
            text = text.replace(shown, actual)
        return text

    def all_variables(self) -> dict[str, str]:
        """Return the environment of commands: this repository's programs, and no cluster."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("LEADLINE")}
        path = f"{ROOT / '.venv/bin'}{os.pathsep}{own['PATH']}"
        return {**own, "PATH": path, "NO_PROXY": "*", "COLUMNS": "200", **self.environment}


class Running:
    """A command in a terminal of its own, which runs until it is interrupted."""

    def __init__(self, terminal: Terminal, command: str) -> None:
        self.command = terminal.text_of(command)
        self.shown = ""
        self._screen, side = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "-c", f"{terminal.kept}exec {self.command}"],
            cwd=terminal.folder,
            env=terminal.all_variables(),
            stdin=subprocess.DEVNULL,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=_heed_ctrl_c,  # noqa: PLW1509 - one call, nothing else
        )
        os.close(side)

    def wait_for(self, awaited: str = "") -> None:
        """Wait until the command has printed this, or anything.

        Raises:
            CommandFailed: it ended before, or the deadline passed.

        """
        give_up = time.monotonic() + DEADLINE_S
        while not self.shown.strip() or awaited not in self.shown:
            if not self._read(0.2) and self.process.poll() is not None:
                raise CommandFailed(f"{self.command}\nended:\n{self.shown}")
            if time.monotonic() > give_up:
                raise CommandFailed(f"{self.command}\ndoes not print {awaited!r}:\n{self.shown}")

    def interrupt(self, *, also: int = 0) -> None:
        """Press Ctrl-C, and wait for the end; `also` is another exit code that is right.

        Raises:
            CommandFailed: it had ended before, or ended with another exit code than 0, or 130
                for the interruption.

        """
        is_over = self.process.poll() is not None
        if not is_over:
            os.killpg(self.process.pid, signal.SIGINT)
        give_up = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            self._read(0.2)
            if time.monotonic() > give_up:
                self.process.kill()
        os.close(self._screen)
        if is_over or self.process.wait() not in (0, 130, -signal.SIGINT, also):
            code = self.process.returncode
            raise CommandFailed(f"{self.command}\nended with {code}:\n{self.shown}")

    def _read(self, wait_s: float) -> bool:
        """Read what is printed within a time; False if the command has closed its terminal."""
        ready, _, _ = select.select([self._screen], [], [], wait_s)
        if not ready:
            return True
        try:
            data = os.read(self._screen, 65536)
        except OSError:
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


def _heed_ctrl_c() -> None:
    """Undo what a background job inherits from its shell: that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

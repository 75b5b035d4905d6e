"""A cluster run by the `leadline up` command itself, for tests without an event loop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0


class Up:
    """A running `leadline up --json`."""

    def __init__(self, data_dir: Path, *words: str) -> None:
        self.data_dir = data_dir
        command = [*command_line(*words), "--data-dir", str(data_dir), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.stdout.close()
        assert line, f"`leadline up` ended with {self.process.wait()}"
        self.document: dict[str, Any] = json.loads(line)

    def file(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.data_dir / "cluster.json").read_text())
        return document

    def rows(self) -> list[dict[str, Any]]:
        kinds = ("zookeeper_servers", "controllers", "brokers", "coordinators")
        return [row for kind in kinds for row in self.file()[kind]]

    def run(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [*command_line(*words), "--data-dir", str(self.data_dir)]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=DEADLINE_S
        )

    def ask(self, *words: str, stdin: str | None = None) -> Any:
        done = self.run(*words, "--json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def command_line(*words: str) -> list[str]:
    return [sys.executable, "-m", "leadline_cli", *words]


@contextmanager
def running(data_dir: Path, *words: str) -> Iterator[Up]:
    up = Up(data_dir, *words)
    try:
        yield up
    except BaseException:
        for log in sorted((data_dir / "logs").glob("*.log")):
            sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}\n")
        raise
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGTERM)


def until(holds: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    give_up = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < give_up, f"waited in vain until {what}"
        time.sleep(0.1)

"""What the demo shows while it runs: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from leadline_cli.demo.leadership import Leadership, rows_for_people

_PLAIN_INTERVAL_S: Final = 2.0


class View:
    """Shows leaders and progress; `say` is for lines that stay."""

    def __init__(self, console: Console, leadership: Leadership) -> None:
        self._console = console
        self._leadership = leadership
        self._started_s = time.monotonic()
        self._progress = ""
        self._printed_s = 0.0
        self._live = Live(console=console, refresh_per_second=8) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._refresh()
            self._live.stop()

    def say(self, event: str) -> None:
        """Show what happened, with the time since the start."""
        line = f"{time.monotonic() - self._started_s:6.1f} s  {event}"
        self._console.print(line, markup=False)

    def progress(self, text: str) -> None:
        """Show how far things are."""
        self._progress = text
        now_s = time.monotonic()
        if self._live is not None:
            self._refresh()
        elif now_s - self._printed_s >= _PLAIN_INTERVAL_S:
            self._printed_s = now_s
            self._console.print(f"{now_s - self._started_s:6.1f} s  {text}", markup=False)

    def _refresh(self) -> None:
        if self._live is None:
            return
        table = Table("partition", "leader", "epoch", "in sync", "replicas")
        for row in rows_for_people(self._leadership):
            dead = row[1].isdigit() and int(row[1]) in self._leadership.killed_at
            table.add_row(*row, style="red" if dead or row[1] == "none" else None)
        self._live.update(Group(table, Text(self._progress, style="bold")))

"""Shows the progress of the demo: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from leadline_cli.demo.leadership import LeadershipTracker
from leadline_cli.output import partition_cells
from leadline_client.wire import NO_LEADER

_PLAIN_INTERVAL_S: Final = 2.0


class DemoDisplay:
    """Shows leaders and progress; `say` prints lines that remain."""

    def __init__(self, console: Console, tracker: LeadershipTracker) -> None:
        self._console = console
        self._tracker = tracker
        self._started_s = time.monotonic()
        self._progress = ""
        self._printed_s = 0.0
        self._live = Live(console=console, refresh_per_second=8) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._refresh()
            self._live.stop()

    def say(self, event: str) -> None:
        """Print an event with the time since the start."""
        line = f"{time.monotonic() - self._started_s:6.1f} s  {event}"
        self._console.print(line)

    def progress(self, text: str) -> None:
        """Show the current progress."""
        self._progress = text
        now_s = time.monotonic()
        if self._live is not None:
            self._refresh()
        elif now_s - self._printed_s >= _PLAIN_INTERVAL_S:
            self._printed_s = now_s
            self._console.print(f"{now_s - self._started_s:6.1f} s  {text}")

    def _refresh(self) -> None:
        if self._live is None:
            return
        table = Table("partition", "leader", "epoch", "in sync", "replicas")
        for row in self._tracker.partitions:
            offline = row.leader == NO_LEADER or row.leader in self._tracker.killed_at
            table.add_row(*partition_cells(row), style="red" if offline else None)
        self._live.update(Group(table, Text(self._progress, style="bold")))

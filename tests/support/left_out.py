"""Names at the end of a run the tests that were skipped for want of a program, and says why.

Such a test skips with a reason that begins with LEFT OUT; pytest would only count it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

MARK = "LEFT OUT"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each reason."""
    for line in lines(terminalreporter.getreports("skipped")):
        terminalreporter.write_line(line, yellow=True)


def lines(skipped: Iterable[pytest.TestReport]) -> list[str]:
    """Return a line for each reason, with the number of its tests."""
    reasons: Counter[str] = Counter()
    for report in skipped:
        if isinstance(report.longrepr, tuple):
            _, mark, why = report.longrepr[2].partition(MARK)
            if mark:
                reasons[why.strip(": ")] += 1
    return [f"{MARK} ({count}): {why}" for why, count in reasons.items()]

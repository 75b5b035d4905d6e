"""`pytest --retry-alone N`: at most N failed tests run once more, each alone, after all others.

Tests of real processes share a machine with each other, and one may fail because that is busy.
One that then passes alone does not fail the run. The run says so at its end, with how it failed
the first time, because such a test must be mended. More than N failures are no accident: then
nothing runs again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator

import pytest

_PASSED_ALONE = "passed only alone"
"""A category of results, beside pytest's own `failed` and `error`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--retry-alone",
        type=int,
        default=0,
        metavar="N",
        help="run failed tests once more, each alone, if they are at most N",
    )


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Run the failed tests again once all workers have ended, and before the summary."""
    yield
    allowed = session.config.getoption("--retry-alone")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    is_worker = hasattr(session.config, "workerinput")
    if allowed and reporter is not None and not is_worker:
        _retry(session, reporter, allowed)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Show how each test that passed only alone had failed; at the very end, in a line each."""
    reports = terminalreporter.stats.get(_PASSED_ALONE, [])
    for report in reports:
        terminalreporter.section(f"{_PASSED_ALONE}, to be mended: {report.nodeid}")
        terminalreporter.line(report.longreprtext)
    yield
    for report in reports:
        terminalreporter.line(f"{_PASSED_ALONE}: {report.nodeid} - {_first_failure(report)}")


def _first_failure(report: pytest.TestReport) -> str:
    """Return the first line of what was raised."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text: str = crash.message if crash else report.longreprtext
    return text.partition("\n")[0]


def _retry(session: pytest.Session, reporter: pytest.TerminalReporter, allowed: int) -> None:
    failures = [
        report
        for category in ("failed", "error")
        for report in reporter.stats.get(category, [])
        if isinstance(report, pytest.TestReport)
    ]
    failed = list(dict.fromkeys(report.nodeid for report in failures))
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= allowed:
        return
    passed = {node_id for node_id in failed if _passes_alone(session.config, reporter, node_id)}
    for report in failures:
        if report.nodeid in passed:
            reporter.stats["failed" if report.when == "call" else "error"].remove(report)
            reporter.stats.setdefault(_PASSED_ALONE, []).append(report)
    if passed == set(failed):
        session.exitstatus = pytest.ExitCode.OK


def _passes_alone(config: pytest.Config, reporter: pytest.TerminalReporter, node_id: str) -> bool:
    reporter.section(f"once more, alone: {node_id}")
    sys.stdout.flush()
    marks = config.getoption("-m")
    command = [sys.executable, "-m", "pytest", "--retry-alone", "0", "-m", marks, node_id]
    return subprocess.run(command, cwd=config.rootpath, check=False).returncode == 0

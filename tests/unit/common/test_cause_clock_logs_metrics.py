"""Cause ids, clocks, log lines and metric registries."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from leadline_common.cause import accept_cause, cause_scope, current_cause, new_cause
from leadline_common.clock import SystemClock
from leadline_common.logs import configure_logging
from leadline_common.metrics import Metrics
from tests.support.manual_clock import ManualClock
from tests.support.suspended_machine import suspend


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("stated", ["a", "job-7_B.2", "x" * 64])
def test_a_sane_cause_is_kept(stated: str | None) -> None:
    assert accept_cause(stated) == stated


@pytest.mark.parametrize("stated", [None, "", "x" * 65, "a b", "a\nb", "é", "a\n"])
def test_any_other_cause_is_replaced(stated: str | None) -> None:
    accepted = accept_cause(stated)
    assert accepted != stated
    assert accept_cause(accepted) == accepted


async def test_a_cause_reaches_tasks_started_under_it_and_ends_with_its_scope() -> None:
    with cause_scope("outer"):
        task = asyncio.create_task(asyncio.to_thread(current_cause))
        with cause_scope("inner"):
            assert current_cause() == "inner"
        assert current_cause() == "outer"
    assert current_cause() == ""
    assert await task == "outer"
    assert new_cause() != new_cause()


def test_the_system_clock_never_goes_backwards() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(1000)]
    assert readings == sorted(readings)
    assert clock.wall_ms() > 1_700_000_000_000


def test_the_clock_of_leases_goes_on_while_the_machine_is_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R10: others have taken over meanwhile."""
    before_ms = SystemClock().monotonic_ms()
    suspend(monkeypatch, hours=1)
    assert SystemClock().monotonic_ms() - before_ms >= 3_600_000


def test_a_manual_clock_moves_only_when_told_and_wall_time_may_jump_alone() -> None:
    clock = ManualClock(monotonic_ms=5, wall_ms=1000)
    clock.advance(10)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (15, 1010)
    clock.step_wall(-500)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (15, 510)
    with pytest.raises(ValueError, match="cannot advance"):
        clock.advance(-1)


@pytest.mark.usefixtures("logging_restored")
def test_every_line_says_who_speaks_and_why_also_those_of_libraries() -> None:
    stream = io.StringIO()
    configure_logging("broker", 3, stream=stream)
    with cause_scope("job-1"):
        structlog.get_logger("leadline").info("became leader", topic="t", epoch=4)
        logging.getLogger("library").warning("slow by %s ms", 12)
    structlog.get_logger("leadline").info("idle")
    structlog.get_logger("leadline").debug("a detail")
    ours, theirs, idle = lines(stream)
    assert (ours["event"], ours["topic"], ours["epoch"]) == ("became leader", "t", 4)
    assert (theirs["event"], theirs["level"]) == ("slow by 12 ms", "warning")
    for line in (ours, theirs):
        assert (line["service"], line["id"], line["cause"]) == ("broker", 3, "job-1")
    assert "cause" not in idle


@pytest.mark.usefixtures("logging_restored")
def test_an_exception_is_one_json_line_with_its_traceback() -> None:
    stream = io.StringIO()
    configure_logging("broker", 3, stream=stream)
    try:
        [].pop()
    except IndexError:
        structlog.get_logger("leadline").exception("flush failed")
    (line,) = lines(stream)
    assert "pop from empty list" in str(line["exception"])


@pytest.mark.usefixtures("logging_restored")
def test_the_console_form_is_for_people_and_the_level_is_kept() -> None:
    stream = io.StringIO()
    configure_logging("controller", 1, level="warning", form="console", stream=stream)
    structlog.get_logger("leadline").info("not shown")
    structlog.get_logger("leadline").warning("shown", partition=2)
    (line,) = stream.getvalue().splitlines()
    assert "shown" in line
    assert "partition=2" in line


def test_two_registries_share_nothing() -> None:
    first, second = Metrics(process=False), Metrics(process=False)
    first.counter("elections", "Elections held.", ("reason",)).labels("isr").inc()
    second.counter("elections", "Elections held.", ("reason",))
    assert b'leadline_elections_total{reason="isr"} 1.0' in first.render()
    assert b'reason="isr"' not in second.render()


def test_a_gauge_can_be_read_when_looked_at() -> None:
    metrics = Metrics(process=False)
    values = [1.0]
    metrics.gauge_from("offline_partitions", "Partitions without a leader.", lambda: values[0])
    values[0] = 7.0
    assert b"leadline_offline_partitions 7.0" in metrics.render()

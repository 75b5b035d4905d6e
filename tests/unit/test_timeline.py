"""A failed run leaves one page that names what went wrong, when, and under which fault."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from leadline_common.znodes import AuditEntry, StateChange
from tests.support.checks.history import History
from tests.support.faults.observer import Fault
from tests.support.timeline.collect import MOST_SHOWN, Run, timeline_of
from tests.support.timeline.drawing import bucket_count
from tests.support.timeline.model import FaultSpan, OperationLane, Timeline
from tests.support.timeline.page import page_of, write_page

WALL_S = 1_700_000_000.0
"""Unix time of the moment that is 0 on the monotonic clock of these runs."""


def change(at_s: float, leader: int, epoch: int, *isr: int) -> AuditEntry:
    row = StateChange("orders", 0, "failover", None, (leader, epoch, isr), epoch)
    time_ms = int((WALL_S + at_s) * 1000)
    return AuditEntry(time=time_ms, cause="c", actor="controller-1", kind="k", changes=(row,))


AUDIT = [change(99.0, 1, 0, 1, 2, 3), change(108.0, -1, 1, 2, 3), change(109.0, 2, 2, 2, 3)]
FAULTS = [
    Fault(107.0, "kill", "broker-1"),
    Fault(112.0, "restart", "broker-1"),
    Fault(113.0, "freeze", "broker-3"),
    Fault(114.0, "resume", "broker-3"),
    Fault(115.0, "freeze", "controller-1"),
]


def failed_run(skipped: int = 60) -> Run:
    """Return twenty seconds of sends, of which a reader skipped one, at 106 s."""
    history = History()
    everything, reader = history.consumer("final"), history.consumer("reader <b>of</b> 0")
    for number in range(200):
        began_s = 100 + number / 10
        send = history.send_batch([f"v{number}"], ("orders", 0), "p0", began_s)
        history.ack_batch(send, number, began_s + 0.05)
        for consumer in (everything, reader):
            if consumer is everything or number != skipped:
                consumer.poll(("orders", 0), [(number, f"v{number}")], began_s + 0.08)
    history.give_up_batch(history.send_batch(["lost?"], ("orders", 0), "p0", 119.9), 120.0)
    return Run(
        title="test_planted",
        verdict="AssertionError: 1 violations",
        topic="orders",
        history=history,
        faults=FAULTS,
        audit=AUDIT,
        anomalies=history.check(),
        problems=["I12: an older controller wrote"],
        notes=["nothing was asked of <zookeeper>"],
        ended_s=120.0,
        wall_minus_monotonic_s=WALL_S,
    )


class Ids(HTMLParser):
    """Collects ids and links, and fails on tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids += [named["id"] or ""] if "id" in named else []
        self.links += [named["href"] or ""] if tag == "a" else []
        self.sources += [named["src"] or ""] if "src" in named else []
        if tag not in {"meta", "link"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_of_a_failed_run_names_the_anomaly_and_leads_to_its_place(tmp_path: Path) -> None:
    path = write_page(timeline_of(failed_run()), tmp_path, "planted")

    page = path.read_text(encoding="utf-8")
    read = Ids()
    read.feed(page)
    assert read.open == []
    assert len(set(read.ids)) == len(read.ids)
    assert {"anomaly-1", "mark-1"} <= set(read.ids)
    assert {link[1:] for link in read.links} <= set(read.ids)
    row = re.search(r'<tr id="anomaly-1">.*?</tr>', page)
    assert row is not None
    for part in ("6.180 s", "poll skip", "orders-0", "v60", "offset 60 was skipped by reader"):
        assert part in row[0]
    for part in ("I12: an older controller wrote", "AssertionError: 1 violations"):
        assert part in page


def test_the_page_needs_nothing_else() -> None:
    page = page_of(timeline_of(failed_run()))
    read = Ids()
    read.feed(page)
    assert read.sources == []
    assert all(link.startswith("#") for link in read.links)
    assert "<script" not in page
    assert not re.search(r"url\(|@import|https?:", page)
    assert "prefers-color-scheme: dark" in page


def test_what_others_wrote_is_escaped() -> None:
    page = page_of(timeline_of(failed_run()))
    assert "<b>of</b>" not in page
    assert "&lt;zookeeper&gt;" in page


def test_times_are_relative_to_the_first_send_on_both_clocks() -> None:
    timeline = timeline_of(failed_run())
    assert timeline.length_s == 20.0
    (lane,) = timeline.partitions
    assert [(s.since_s, s.until_s, s.leader, s.epoch, s.isr) for s in lane.spans] == [
        (0.0, 8.0, 1, 0, (1, 2, 3)),
        (8.0, 9.0, -1, 1, (2, 3)),
        (9.0, 20.0, 2, 2, (2, 3)),
    ]
    assert [one.at_s for one in timeline.anomalies] == [pytest.approx(6.18)]


def test_an_isr_change_begins_no_new_term() -> None:
    audit = [*AUDIT, change(110.0, 2, 2, 1, 2, 3)]
    (lane,) = timeline_of(replace(failed_run(), audit=audit)).partitions
    assert [(term.leader, term.since_s, term.until_s) for term in lane.terms()] == [
        (1, 0.0, 8.0),
        (-1, 8.0, 9.0),
        (2, 9.0, 20.0),
    ]


def test_anomalies_at_one_place_are_marked_side_by_side() -> None:
    run = failed_run()
    page = page_of(timeline_of(replace(run, anomalies=[*run.anomalies] * 3)))
    assert len(set(re.findall(r'<circle cx="([0-9.]+)"', page))) == 3


def test_a_fault_lasts_until_what_ends_it() -> None:
    assert timeline_of(failed_run()).faults == [
        FaultSpan("broker-1", "down: kill", 7.0, 12.0),
        FaultSpan("broker-3", "frozen: freeze", 13.0, 14.0),
        FaultSpan("controller-1", "frozen: freeze", 15.0, None),
    ]


def test_leaders_epochs_isrs_and_faults_are_told() -> None:
    page = page_of(timeline_of(failed_run()))
    for part in (
        "orders-0: broker 1, epoch 0, ISR [1, 2, 3], 0.00 s to 8.00 s",
        "orders-0: no leader, epoch 1, ISR [2, 3], 8.00 s to 9.00 s",
        "broker-1 down: kill, 7.00 s to 12.00 s",
        "controller-1 frozen: freeze, 15.00 s to the end",
        "producer p0 from",
        "1 unknown",
    ):
        assert part in page


def test_operations_are_counted_in_parts_of_the_time() -> None:
    rows = [(at / 5_000, "acked", 1) for at in range(100_000)]
    lane = OperationLane("p", [*rows, (20.0, "refused", 3)])
    buckets = lane.buckets(20.0, 10)
    assert [sum(bucket.values()) for bucket in buckets] == [10_000] * 9 + [10_003]
    assert buckets[-1]["refused"] == 3


def test_a_page_of_many_operations_stays_small() -> None:
    lanes = [
        OperationLane(f"p{n}", [(at / 5_000, "acked", 1) for at in range(100_000)])
        for n in range(3)
    ]
    page = page_of(Timeline("t", "v", "now", 20.0, operations=lanes))
    assert page.count('class="acked"') == 3 * bucket_count(20.0) + 1  # and in the legend
    assert len(page) < 300_000


def test_too_many_anomalies_are_counted() -> None:
    run = failed_run()
    run = Run("t", "v", "orders", run.history, anomalies=[*run.anomalies] * 500, ended_s=120.0)
    timeline = timeline_of(run)
    assert len(timeline.anomalies) == MOST_SHOWN
    assert timeline.notes == ["300 later anomalies are not listed"]


def test_a_run_that_sent_nothing_has_a_page() -> None:
    page = page_of(timeline_of(Run("t", "it failed at once", "orders", History())))
    assert "it failed at once" in page

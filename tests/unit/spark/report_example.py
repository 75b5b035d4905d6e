"""What a report is drawn from, written by hand: ten minutes with a little of everything."""

from __future__ import annotations

from typing import Any

from leadline_spark.jobs.analytics.changes import EXPANSION_CAUSES, LEADER_CAUSES, SHRINK_CAUSES
from leadline_spark.jobs.analytics.report.data import FINE, ReportData

SINCE, UNTIL = 1_767_225_600_000, 1_767_226_200_000
EVIL = '<script>alert("x")</script>&amp;'
"""A name that must be shown as it is."""


def span(started: int, ended: int, *, censored: bool = False, **more: Any) -> dict[str, Any]:
    """Return a span, in seconds from the start."""
    begin, end = SINCE + started * 1000, SINCE + ended * 1000
    times = {"started_at": begin, "ended_at": end, "duration_ms": end - begin}
    return {**times, "censored": censored, **more}


def quiet_summary() -> dict[str, Any]:
    """Return the figures of a cluster to which nothing happened."""
    fine = {"union_ms": 0, "partition_ms": 0, "spans": 0, "censored": 0, "longest_ms": None}
    times = dict.fromkeys(("p50_ms", "p99_ms", "max_ms"))
    counts = {"failures": 0, "repairs": 0, "planned_stops": 0, "restarts": 0}
    lengths = {"up_ms": 600_000, "failed_ms": 0, "planned_ms": 0, "mtbf_ms": None, "mttr_ms": None}
    return {
        "period": {
            "since": SINCE,
            "until": UNTIL,
            "duration_ms": UNTIL - SINCE,
            "entries": 3,
            "first_id": 0,
            "missing": 0,
        },
        "partitions": {
            "count": 2,
            "observed_partition_ms": 1_200_000,
            "availability": 1.0,
            "no_leader": fine,
            "below_min_isr": fine,
            "under_replicated": fine,
        },
        "leadership": {"changes": 0, "planned": 0, "by_cause": dict.fromkeys(LEADER_CAUSES, 0)},
        "elections": {"timed": 0, **{f"decision_{name}": None for name in times}},
        "isr": {
            "shrinks": {"count": 0, "by_cause": dict.fromkeys(SHRINK_CAUSES, 0)},
            "expansions": {"count": 0, "by_cause": dict.fromkeys(EXPANSION_CAUSES, 0)},
        },
        "brokers": {"count": 1, **counts, **lengths, "each": [_broker(1, counts, lengths)]},
        "reassignments": {
            "tasks": 0,
            "tasks_open": 0,
            "partitions": 0,
            "partitions_open": 0,
            "moved_bytes": None,
            "bytes_per_s": None,
            **{f"{what}_{name}": None for what in ("task", "partition") for name in times},
        },
        "controllers": {"terms": 1, "failovers": 0, **{f"takeover_{name}": None for name in times}},
    }


def _broker(number: int, counts: dict[str, Any], lengths: dict[str, Any]) -> dict[str, Any]:
    return {
        "broker": number,
        **counts,
        **lengths,
        "state_now": "up",
        "longest_outage_ms": None,
        "longest_up_ms": 600_000,
        "first_seen_at": SINCE,
    }


def quiet() -> ReportData:
    """Return a report of nothing."""
    return ReportData(
        summary=quiet_summary(),
        curves={name: [0] * FINE for name in ("no_leader", "below_min_isr", "under_replicated")},
        broker_spans=[span(0, 600, censored=True, broker=1, state="up")],
        controller_terms=[_term(1, 1, 0, 600, censored=True)],
        partitions=[_partition("orders", 0), _partition("orders", 1)],
        partition_spans=[],
        leaders_by_time=[],
        handovers=[],
        isr_by_time=[],
        gaps=[],
        unclean=[],
        outages=[],
        tasks=[],
    )


def _term(term: int, controller: int, started: int, ended: int, **more: Any) -> dict[str, Any]:
    return span(started, ended, term=term, controller=controller, takeover_ms=45, **more)


def _partition(topic: str, partition: int, **times: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("no_leader", "below_min_isr", "under_replicated", "leader_changes"), 0)
    return {"topic": topic, "partition": partition, **nothing, **times}


def eventful() -> ReportData:
    """Return a report with something of everything, and a topic with an evil name."""
    data = quiet()
    evil = {"topic": EVIL, "partition": 0, "life": 1}
    summary = quiet_summary()
    summary["partitions"]["availability"] = 0.99995
    summary["partitions"]["no_leader"] = {
        "union_ms": 60,
        "partition_ms": 60,
        "spans": 1,
        "censored": 1,
        "longest_ms": 60,
    }
    summary["leadership"]["changes"] = 3
    summary["leadership"]["by_cause"] |= {"failure": 2, "unclean": 1, "lost": 1}
    summary["isr"]["shrinks"] = {"count": 2, "by_cause": {"failure": 2}}
    members = {name: getattr(data, name) for name in ReportData.__slots__}
    return ReportData(
        **members
        | {
            "summary": summary,
            "curves": data.curves | {"no_leader": [0] * (FINE - 9) + [1] * 9},
            "controller_terms": [_term(1, 1, 0, 300), _term(2, 2, 300, 600, censored=True)],
            "partitions": [_partition(EVIL, 0, no_leader=60), *data.partitions],
            "partition_spans": [span(599, 600, censored=True, wrong="no_leader", **evil)],
            "leaders_by_time": [
                {"bucket": 3, "change_cause": "failure", "count": 2},
                {"bucket": 3, "change_cause": "unclean", "count": 1},
            ],
            "handovers": [{"from_leader": 1, "to_leader": -1, "count": 1}],
            "isr_by_time": [
                {"bucket": 3, "direction": "shrink", "change_cause": "failure", "count": 2}
            ],
            "gaps": [span(599, 600, censored=True, **evil)],
            "unclean": [
                {**evil, "at": SINCE, "to_leader": 2, "leader_epoch": 4, "audit_id": 77}
                | {"actor": "operator"}
            ],
            "outages": [span(100, 160, broker=1)],
            "tasks": [
                span(
                    200,
                    260,
                    task="0000000003",
                    task_kind="reassign",
                    state="done",
                    reason=EVIL,
                    partitions=4,
                    done=4,
                    moved_bytes=12_300_000,
                    bytes_per_s=205_000.0,
                )
            ],
        }
    )

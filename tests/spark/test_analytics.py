"""The figures of the analytics: on histories written by hand, and on a recorded fault run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs.analytics import job
from leadline_spark.jobs.analytics.brokers import broker_spans
from leadline_spark.jobs.analytics.history import read_cluster, read_files, take_history
from leadline_spark.jobs.analytics.partitions import partition_events
from leadline_spark.jobs.analytics.tasks import partition_moves, task_stats
from tests.spark import analytics_oracle
from tests.spark.histories import START_MS, HandWritten, failures, ms, plans
from tests.spark.live import Live

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parent / "data" / "audit-fault-run.ndjson"
_QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, without what only pays for large tables."""
    before = {name: spark.conf.get(name) for name in _QUICK}
    for name, value in _QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, former in before.items():
        spark.conf.set(name, str(former))


@pytest.fixture(scope="module")
def failed(quick: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The summary of the failures, at 100 s."""
    folder = tmp_path_factory.mktemp("failures")
    return analysed(quick, failures().write(folder / "history.ndjson"), folder, ms(100))


@pytest.fixture(scope="module")
def planned(quick: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The summary of the plans, at 100 s."""
    folder = tmp_path_factory.mktemp("plans")
    return analysed(quick, plans().write(folder / "history.ndjson"), folder, ms(100))


def analysed(spark: SparkSession, path: Path, out: Path, until: int | None = None) -> Any:
    """Return the summary as it was written."""
    job.analyse(take_history(read_files(spark, [str(path)]), until), out)
    return json.loads((out / job.SUMMARY).read_text())


def test_failures_give_the_figures_that_a_hand_computes(
    failed: Any,
) -> None:
    assert failed["period"] == {
        "since": START_MS,
        "until": START_MS + 100_000,
        "duration_ms": 100_000,
        "entries": 17,
        "first_id": 500,
        "missing": 0,
    }
    # a-0 and a-1 from 1 s to 100 s, old-0 all the time.
    assert failed["partitions"] == {
        "count": 3,
        "observed_partition_ms": 99_000 + 99_000 + 100_000,
        "availability": pytest.approx(1 - 30 / 298),
        # a-0: 30 to 40; a-1: 30 to 50.
        "no_leader": {
            "union_ms": 20_000,
            "partition_ms": 30_000,
            "spans": 2,
            "censored": 0,
            "longest_ms": 20_000,
        },
        # a-0: 20 to 30, 40 to the end; a-1: 20 to 30, 50 to 60; old-0: 70 to the end.
        "below_min_isr": {
            "union_ms": 10_000 + 60_000,
            "partition_ms": 10_000 + 60_000 + 10_000 + 10_000 + 30_000,
            "spans": 5,
            "censored": 2,
            "longest_ms": 60_000,
        },
        # a-0 and a-1: 10 to the end; old-0: 70 to the end.
        "under_replicated": {
            "union_ms": 90_000,
            "partition_ms": 90_000 + 90_000 + 30_000,
            "spans": 3,
            "censored": 3,
            "longest_ms": 90_000,
        },
    }
    causes = {"failure": 3, "unclean": 1, "recovery": 1, "lost": 2}
    assert failed["leadership"] == {
        "changes": 5,
        "planned": 0,
        "by_cause": dict.fromkeys(("controlled_shutdown", "drain", "reassignment", "preferred"), 0)
        | causes,
    }
    # 10, 20, 20, 50 and 100 ms; the 99th percentile is 0.96 of the way from 50 to 100.
    assert failed["elections"] == {
        "timed": 5,
        "decision_p50_ms": 20,
        "decision_p99_ms": pytest.approx(98),
        "decision_max_ms": 100,
    }
    shrinks, expansions = failed["isr"]["shrinks"], failed["isr"]["expansions"]
    assert {cause: n for cause, n in shrinks["by_cause"].items() if n} == {
        "failure": 4,
        "unclean": 1,
        "lagging": 1,
    }
    assert expansions == {
        "count": 2,
        "by_cause": {"caught_up": 1, "reassignment": 0, "unclean": 1},
    }
    # In a history that lacks its beginning, the first recorded controller counts as a failover.
    assert failed["controllers"]["failovers"] == 1
    assert failed["controllers"]["takeover_max_ms"] == 100


def test_brokers_are_up_and_down_as_a_hand_computes(failed: Any) -> None:
    brokers = failed["brokers"]
    one, two, three = brokers["each"]
    # 1: up 0.1 to 10 and 35 to the end.
    assert (one["up_ms"], one["failed_ms"]) == (9_900 + 65_000, 25_000)
    assert (one["failures"], one["repairs"]) == (1, 1)
    assert (one["mtbf_ms"], one["mttr_ms"]) == (74_900, 25_000)
    # 2: up 0.1 to 20, and not back at the end: nothing was repaired.
    assert (two["up_ms"], two["failed_ms"], two["mttr_ms"]) == (19_900, 80_000, None)
    assert (two["state_now"], two["repairs"], two["mtbf_ms"]) == ("failed", 0, 19_900)
    # 3: up 0.1 to 30 and 50 to the end.
    assert (three["up_ms"], three["failed_ms"], three["mttr_ms"]) == (79_900, 20_000, 20_000)
    # All: 174.7 s up and 3 failures; 125 s down and 2 repairs.
    assert brokers["mtbf_ms"] == pytest.approx(174_700 / 3)
    assert brokers["mttr_ms"] == pytest.approx(125_000 / 2)


def test_what_was_planned_is_kept_apart(planned: Any) -> None:
    partitions, brokers = planned["partitions"], planned["brokers"]
    # b-0 from 1 to 70; recreated, from 73 until its removal is ordered at 90.
    assert (partitions["count"], partitions["observed_partition_ms"]) == (1, 69_000 + 17_000)
    assert (partitions["availability"], partitions["no_leader"]["spans"]) == (1, 0)
    # Since min.insync.replicas is 2: 10 to 15, 20 to 26, 55 to 57; by default: 80 to 90.
    below, missing = partitions["below_min_isr"], partitions["under_replicated"]
    assert (below["partition_ms"], below["spans"], below["censored"]) == (23_000, 4, 0)
    # 5 to 15, 20 to 26, 55 to 57, 80 to 90; what is being added is not missing.
    assert (missing["partition_ms"], missing["spans"], missing["longest_ms"]) == (28_000, 4, 10_000)
    assert planned["leadership"]["by_cause"] == {
        **dict.fromkeys(("failure", "unclean", "recovery", "drain", "lost"), 0),
        **dict.fromkeys(("controlled_shutdown", "reassignment", "preferred"), 1),
    }
    assert planned["leadership"]["planned"] == planned["leadership"]["changes"] == 3
    # 0 and 5 ms; a reassignment's steps do not answer news.
    assert (planned["elections"]["timed"], planned["elections"]["decision_p50_ms"]) == (2, 2.5)
    assert planned["isr"]["shrinks"]["by_cause"] == {
        "failure": 2,
        "lagging": 1,
        "controlled_shutdown": 1,
        "unclean": 0,
        "reassignment": 1,
    }
    assert planned["isr"]["expansions"]["by_cause"] == {
        "caught_up": 3,
        "reassignment": 1,
        "unclean": 0,
    }
    one, two, three, four = brokers["each"]
    assert (one["planned_stops"], one["planned_ms"], one["up_ms"]) == (1, 4_000, 96_000)
    assert (two["restarts"], two["failures"], two["up_ms"]) == (1, 0, 100_000)
    assert (three["failures"], three["failed_ms"]) == (1, 20_000)
    assert (four["planned_stops"], four["planned_ms"], four["state_now"]) == (1, 35_000, "planned")
    assert (brokers["failures"], brokers["mtbf_ms"]) == (1, 96_000 + 100_000 + 80_000 + 65_000)


def test_moves_and_controllers_are_timed(planned: Any) -> None:
    # 8 s for a reassignment of 7 MB, 2 s for a drain that reported no bytes; one move, 40 to 47.
    assert planned["reassignments"] == {
        "tasks": 2,
        "tasks_open": 0,
        "task_p50_ms": 5_000,
        "task_p99_ms": pytest.approx(7_940),
        "task_max_ms": 8_000,
        "partitions": 1,
        "partitions_open": 0,
        "partition_p50_ms": 7_000,
        "partition_p99_ms": 7_000,
        "partition_max_ms": 7_000,
        "moved_bytes": 7_000_000,
        "bytes_per_s": 875_000,
    }
    assert planned["controllers"] == {
        "terms": 2,
        "failovers": 1,
        "takeover_p50_ms": 40,
        "takeover_p99_ms": 40,
        "takeover_max_ms": 40,
    }


def test_what_is_open_at_the_snapshot_is_cut_off_there(quick: SparkSession, tmp_path: Path) -> None:
    path = plans().write(tmp_path / "history.ndjson")
    history = take_history(read_files(quick, [str(path)]), ms(44))
    (task,) = task_stats(history).collect()
    assert (task.censored, task.ended_at, task.bytes_per_s) == (True, ms(44), None)
    (move,) = partition_moves(history).collect()
    assert (move.censored, move.duration_ms, move.target) == (True, 4_000, [3, 2])


@pytest.mark.parametrize(("cancelled_at", "state"), [(12, "failed"), (22, "planned")])
def test_a_drain_that_was_called_off_excuses_no_later_failure(
    quick: SparkSession, tmp_path: Path, cancelled_at: int, state: str
) -> None:
    h = HandWritten()
    h.brokers(0, [1, 2])
    entries = [
        (10, "", "task_accepted", "preparing"),  # it has no id yet
        (11, "7", "task_launched", "accepted"),
        (cancelled_at, "7", "task_cancelled", "cancelling"),
    ]
    for at, task, kind, now in entries:
        if at > 20:
            h.brokers(20, [1])
        resource = {"task": task, "kind": "drain"}
        h.add(at, kind, resource=resource, after={"state": now, "details": {"broker": 2}})
    if cancelled_at < 20:
        h.brokers(20, [1])
    history = take_history(read_files(quick, [str(h.write(tmp_path / "h.ndjson"))]), ms(30))
    down = broker_spans(history).where("broker = 2 and state != 'up'").collect()
    assert [(row.state, row.duration_ms) for row in down] == [(state, 10_000)]


def test_a_task_that_never_began_starts_with_its_first_entry(
    quick: SparkSession, tmp_path: Path
) -> None:
    """An operator wrote it into ZooKeeper, without a time, and cancelled it while it waited."""
    h = HandWritten()
    h.brokers(0, [1, 2])
    for at, kind, state, finished in (
        (10, "task_cancelled", "cancelling", 0),
        (11, "task_over", "cancelled", ms(11)),
    ):
        after = {"state": state, "total": 1, "created_at": 0, "finished_at": finished}
        h.add(at, kind, resource={"task": "7", "kind": "reassignment"}, after=after)
    history = take_history(read_files(quick, [str(h.write(tmp_path / "h.ndjson"))]), ms(30))
    (task,) = task_stats(history).collect()
    assert (task.started_at, task.ended_at, task.duration_ms) == (ms(10), ms(11), 1_000)
    job.analyse(history, tmp_path / "out")
    assert "reassignment 7: cancelled, 1 s" in (tmp_path / "out" / job.REPORT).read_text()


def test_a_broker_whose_first_trace_is_its_failure_counts_from_then_on(
    quick: SparkSession, tmp_path: Path
) -> None:
    """What said that it was up is past its retention; 3 was down before the first entry."""
    h = HandWritten(first_id=500)
    h.add(10, "broker_change", reason="failed [2]")
    h.brokers(10.1, [1])
    h.brokers(20, [1, 2])
    h.brokers(25, [1, 2, 3])
    history = take_history(read_files(quick, [str(h.write(tmp_path / "h.ndjson"))]), ms(30))
    spans = broker_spans(history).orderBy("broker", "started_at").collect()
    assert [(row.broker, row.state, row.started_at) for row in spans] == [
        (1, "up", ms(10.1)),
        (2, "failed", ms(10)),
        (2, "up", ms(20)),
        (3, "up", ms(25)),
    ]


def test_the_recorded_run_has_the_figures_that_another_algorithm_finds(
    quick: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    assert job.main(["--history", str(RECORDED), "--out", str(out), "--title", "<Ours>"]) == 0
    assert capsys.readouterr().out.endswith(f"{out / job.REPORT}\n")
    summary = json.loads((out / job.SUMMARY).read_text())
    expected = analytics_oracle.figures(RECORDED)
    assert {name: summary[name] for name in expected} == expected
    page = (out / job.REPORT).read_text()
    assert "<h1>&lt;Ours&gt;</h1>" in page
    assert "1 unclean election may have lost records" in page
    changes = quick.read.parquet(str(out / job.TABLES / "leader_changes"))
    assert changes.schema["at"].dataType.simpleString() == "timestamp"
    assert changes.where("to_leader >= 0").count() == summary["leadership"]["changes"]


def test_a_history_of_nothing_is_an_error(quick: SparkSession, tmp_path: Path) -> None:
    nothing = tmp_path / "empty.ndjson"
    nothing.write_text("")
    with pytest.raises(LeadlineSparkError) as refused:
        take_history(read_files(quick, [str(nothing)]))
    assert refused.value.code == "LEADLINE_HISTORY_EMPTY"


def test_the_history_of_a_live_cluster_is_read_as_it_is(
    quick: SparkSession, live: Live, topic: str
) -> None:
    live.topic(topic, partitions=2)
    history = take_history(read_cluster(quick, {"bootstrap": live.bootstrap}), time.time_ns())
    changes = partition_events(history).where(f"topic = '{topic}' and is_state")
    rows = changes.orderBy("partition", "id").collect()
    assert [row.partition for row in rows if row.is_first and row.alive] == [0, 1]
    assert all(row.leader in {1, 2, 3} and len(row.replicas) == 3 for row in rows)
    assert history.first_id == 0


def test_entries_that_are_missing_in_between_are_counted(
    quick: SparkSession, tmp_path: Path
) -> None:
    path = failures().write(tmp_path / "history.ndjson")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], *lines[5:], lines[-1]]))
    history = take_history(read_files(quick, [str(path)]))
    assert (history.count, history.missing) == (len(lines) - 2, 2)


def test_either_a_cluster_or_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        job.main(["--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "either --bootstrap or --history" in capsys.readouterr().err

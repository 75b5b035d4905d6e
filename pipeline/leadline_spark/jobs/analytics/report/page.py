"""The page: charts, tables and sentences of a report, rendered with its template."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from operator import itemgetter
from typing import Any

import jinja2
from markupsafe import Markup

from leadline_spark.jobs.analytics.changes import EXPANSION_CAUSES, LEADER_CAUSES, SHRINK_CAUSES
from leadline_spark.jobs.analytics.report import charts, sentences, words
from leadline_spark.jobs.analytics.report.charts import Bar, ChartRow, Period
from leadline_spark.jobs.analytics.report.data import COARSE, ReportData, Row
from leadline_spark.jobs.analytics.report.sentences import CAUSES, STATES, WRONG

_PACKAGE = "leadline_spark.jobs.analytics.report"


def render(data: ReportData, title: str) -> str:
    """Return the page. It contains style and charts, and loads nothing else."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "words": words,
        "causes": CAUSES,
        "wrong": WRONG,
        "states": STATES,
        "style": Markup(_source("page.css")),  # noqa: S704 - our own file
    }
    return environment.get_template("page.html.jinja").render(_context(data, title))


def _source(name: str) -> str:
    return files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _context(data: ReportData, title: str) -> dict[str, Any]:
    figures = data.summary
    period = Period(figures["period"]["since"], figures["period"]["until"])
    return {
        "title": title,
        "data": data,
        "s": figures,
        "verdict": sentences.verdict(figures),
        "tiles": sentences.tiles(figures),
        "overview": _overview(data, period),
        "partitions": _partitions(data, period),
        "leaders": _leaders(data, period),
        "handovers": handover_table(data.handovers),
        "isr": _isr(data, period),
        "tasks": _tasks(data, period),
    }


# -- charts --------------------------------------------------------------------


def _overview(data: ReportData, period: Period) -> Markup:
    rows = [
        ChartRow(f"broker {broker}", [_state_bar(row) for row in spans])
        for broker, spans in _grouped(data.broker_spans, "broker").items()
    ]
    rows.append(ChartRow("active controller", [_term_bar(row) for row in data.controller_terms]))
    # The mildest first, because later curves are drawn over earlier ones.
    curves = dict(reversed(data.curves.items()))
    description = (
        "Above, how many partitions had a replica missing, too few in-sync replicas, or no leader. "
        "Below, when each broker was up or down, and which controller was active."
    )
    title = "Partitions in trouble, brokers and controllers over time"
    return charts.overview("overview", title, description, period, curves, rows)


def _state_bar(row: Row) -> Bar:
    what = f"broker {row['broker']}: {STATES[row['state']]}, "
    return _bar(row, f"state-{row['state']}", what)


def _term_bar(row: Row) -> Bar:
    what = f"controller {row['controller']}, term {row['term']}: "
    return _bar(row, f"term-{row['term'] % 2}", what, str(row["controller"]))


def _partitions(data: ReportData, period: Period) -> Markup:
    spans = _grouped(data.partition_spans, "topic", "partition")
    rows = []
    for row in data.partitions:
        name = (row["topic"], row["partition"])
        label = f"{name[0]}-{name[1]}"
        bars = [
            _bar(one, f"wrong-{one['wrong']}", f"{label}: {WRONG[one['wrong']]}, ")
            for one in spans[name]
        ]
        rows.append(ChartRow(label, bars))
    description = "One row for each partition; coloured where something was wrong with it."
    return charts.timeline("strips", "Partitions over time", description, period, rows)


def _leaders(data: ReportData, period: Period) -> Markup:
    series = _series(data.leaders_by_time, LEADER_CAUSES)
    description = "How many leaders changed in each part of the period, by cause."
    return charts.columns(
        "leaders", "Leader changes over time", description, period, "changes", series
    )


def _isr(data: ReportData, period: Period) -> Markup:
    rows = _grouped(data.isr_by_time, "direction")
    up = _series(rows["expansion"], EXPANSION_CAUSES)
    down = _series(rows["shrink"], SHRINK_CAUSES)
    description = "Expansions above the line, shrinks below it, by cause."
    return charts.columns("isr", "ISR changes over time", description, period, "changes", up, down)


def _tasks(data: ReportData, period: Period) -> Markup:
    in_order = sorted(data.tasks, key=lambda row: (row["started_at"] or 0, row["task"]))
    rows = [
        ChartRow(f"{row['task_kind']} {row['task'].lstrip('0') or '0'}", [_task_bar(row)])
        for row in in_order
    ]
    description = "One row for each task that moved replicas, from its acceptance to its end."
    return charts.timeline("tasks", "Tasks over time", description, period, rows)


def _task_bar(row: Row) -> Bar:
    end = row["state"] if row["state"] in {"done", "cancelled", "failed"} else "open"
    return _bar(row, f"task-{end}", f"{row['task_kind']} {row['task']}: {row['state']}, ")


def _bar(row: Row, kind: str, what: str, label: str = "") -> Bar:
    """Return the bar of a span. Its tooltip is `what`, followed by the time."""
    length = words.duration(row["ended_at"] - row["started_at"])
    begun = words.moment(row["started_at"], with_date=False)
    still = ", still so at the end" if row["censored"] else ""
    tooltip = f"{what}{length} from {begun}{still}"
    return Bar(row["started_at"], row["ended_at"], kind, tooltip, label)


def _series(rows: Iterable[Row], names: Sequence[str]) -> dict[str, list[int]]:
    """Return the counts of each name in each bucket, without names that have none."""
    found = {name: [0] * COARSE for name in names}
    for row in rows:
        found[row["change_cause"]][row["bucket"]] += row["count"]
    return {name: counts for name, counts in found.items() if any(counts)} or {
        names[0]: [0] * COARSE
    }


def _grouped(rows: Iterable[Row], *columns: str) -> dict[Any, list[Row]]:
    """Return the rows by the value of a column, or by the values of several."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    key = itemgetter(*columns)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def handover_table(rows: Iterable[Row]) -> dict[str, Any]:
    """Return how often leadership moved from broker to broker, as a matrix; -1 is no leader."""
    counts: Mapping[tuple[int, int], int] = {
        (row["from_leader"], row["to_leader"]): row["count"] for row in rows
    }
    givers = sorted({giver for giver, _ in counts})
    takers = sorted({taker for _, taker in counts})
    return {
        "takers": takers,
        "most": max(counts.values(), default=1),
        "rows": [(giver, [counts.get((giver, taker), 0) for taker in takers]) for giver in givers],
    }

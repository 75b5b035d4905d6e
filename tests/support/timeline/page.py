"""Writes a timeline as one HTML file that needs no network, no script and no other file."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from tests.support.timeline.drawing import chart_of
from tests.support.timeline.model import Timeline

_STYLE = Path(__file__).with_name("page.css")


def page_of(timeline: Timeline) -> str:
    """Return the document."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(timeline.title)}</title>
<style>
{_STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<h1>{escape(timeline.title)}</h1>
<p class="when">Began {escape(timeline.began)}, ran {timeline.length_s:.1f} s.
Times below are seconds since then.</p>
<div class="verdict">{escape(timeline.verdict)}</div>
{_facts(timeline)}
{_anomalies(timeline)}
{_sentences("Other violations", timeline.problems)}
{_sentences("What could not be found out", timeline.notes)}
<h2>Timeline</h2>
{_legend(timeline)}
<div class="scroll">
{chart_of(timeline)}
</div>
</body>
</html>
"""


def write_page(timeline: Timeline, directory: Path, name: str) -> Path:
    """Write the document into a directory and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.html"
    path.write_text(page_of(timeline), encoding="utf-8")
    return path


def _facts(timeline: Timeline) -> str:
    totals = timeline.totals()
    wrong = len(timeline.anomalies) + len(timeline.problems)
    rows = [("violations", wrong), ("faults", len(timeline.faults))]
    rows += [(f"records {name}", count) for name, count in totals.items()]
    cells = "".join(
        f'<div class="{"bad" if name == "violations" and count else ""}">'
        f"<dt>{escape(name)}</dt><dd>{count:,}</dd></div>"
        for name, count in rows
    )
    return f'<dl class="facts">{cells}</dl>'


def _anomalies(timeline: Timeline) -> str:
    if not timeline.anomalies:
        return ""
    placed = {number for number, _ in timeline.placed()}
    rows = []
    for number, one in enumerate(timeline.anomalies, 1):
        topic, partition = one.partition
        at = "not known" if one.at_s is None else f"{one.at_s:.3f} s"
        when = f'<a href="#mark-{number}">{at}</a>' if number in placed else at
        rows.append(
            f'<tr id="anomaly-{number}"><td class="number">{number}</td>'
            f'<td class="time">{when}</td><td class="kind">{escape(one.kind)}</td>'
            f"<td>{escape(topic)}-{partition}</td><td>{escape(repr(one.value))}</td>"
            f"<td>{escape(one.detail)}</td><td>{escape(one.who)}</td></tr>"
        )
    names = ("", "time", "anomaly", "partition", "value", "detail", "seen by")
    heads = "".join(f"<th>{name}</th>" for name in names)
    body = "\n".join(rows)
    return (
        f'<h2>Anomalies</h2>\n<div class="scroll"><table><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _sentences(heading: str, lines: Iterable[str]) -> str:
    rows = "\n".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{escape(heading)}</h2>\n<ul>\n{rows}\n</ul>" if rows else ""


def _legend(timeline: Timeline) -> str:
    rows = [(f"b{place % 6}", f"broker {one}") for place, one in enumerate(timeline.brokers())]
    rows += [("nobody", "no leader, or process down"), ("fault frozen", "process frozen")]
    rows += [(name, name) for name in timeline.totals()]
    items = "".join(
        '<li><svg width="14" height="12">'
        f'<rect class="{kind}" width="14" height="12" rx="2"/></svg>'
        f"{escape(text)}</li>"
        for kind, text in rows
    )
    return f'<ul class="legend">{items}</ul>'

"""Draws a timeline as one SVG: a row for each process, partition, producer and consumer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tests.support.timeline.model import (
    OUTCOMES,
    FaultSpan,
    LeaderSpan,
    Timeline,
)

LEFT, WIDTH, RIGHT = 150, 1020, 25
MOST_BUCKETS = 210
_BUCKET_S = 0.25
"""Shorter parts than this would separate the operations of a steady load."""
_FAULT_PX, _PARTITION_PX, _OPERATION_PX, _HEADING_PX, _AXIS_PX = 22, 38, 40, 34, 26
_LABEL_PX = 7.0
"""About the width of a letter."""
_MARK_PX, _MOST_BESIDE, _MOST_MOMENTS = 20, 12, 40
_STEPS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


@dataclass(slots=True)
class Chart:
    """The parts of the drawing, from top to bottom."""

    timeline: Timeline
    parts: list[str]
    y: float = 0.0

    def x(self, at_s: float) -> float:
        """Return where a time is."""
        share = min(1.0, max(0.0, at_s / self.timeline.length_s))
        return round(LEFT + share * WIDTH, 1)

    def label(self, text: str, middle: float) -> None:
        """Name a row."""
        shown = text if len(text) <= 20 else text[:19] + "…"
        self.parts.append(
            f'<text class="name" x="{LEFT - 10}" y="{middle:.1f}">{escape(shown)}'
            f"<title>{escape(text)}</title></text>"
        )

    def heading(self, text: str) -> None:
        """Begin a section."""
        self.y += _HEADING_PX
        self.parts.append(
            f'<text class="heading" x="0" y="{self.y - 10:.1f}">{escape(text)}</text>'
        )


def chart_of(timeline: Timeline) -> str:
    """Return the SVG."""
    chart = Chart(timeline, [])
    lanes: dict[str, float] = {}
    _axis(chart)
    top = chart.y
    _faults(chart)
    _leaders(chart, lanes)
    _operations(chart, lanes)
    bottom = chart.y + 6
    behind = [*_grid(chart, top, bottom), *_bands(chart, top, bottom)]
    marks = [*_moments(chart, top, bottom), *_marks(chart, lanes)]
    width, height = LEFT + WIDTH + RIGHT, f"{bottom + 10:.0f}"
    opening = (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="Timeline of the run">'
    )
    return "\n".join([opening, *behind, *chart.parts, *marks, "</svg>"])


def bucket_count(length_s: float) -> int:
    """Return into how many parts the time of a run is divided."""
    return max(20, min(MOST_BUCKETS, int(length_s / _BUCKET_S)))


def _ticks(length_s: float) -> list[float]:
    step_s = next((one for one in _STEPS_S if length_s / one <= 14), length_s / 10)
    return [number * step_s for number in range(int(length_s / step_s) + 1)]


def _axis(chart: Chart) -> None:
    chart.y += _AXIS_PX
    for at_s in _ticks(chart.timeline.length_s):
        x = chart.x(at_s)
        chart.parts.append(f'<text class="tick" x="{x}" y="{chart.y - 10}">{at_s:g} s</text>')


def _grid(chart: Chart, top: float, bottom: float) -> Iterator[str]:
    for at_s in _ticks(chart.timeline.length_s):
        x = chart.x(at_s)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{top - 6}" y2="{bottom}"/>'


def _bands(chart: Chart, top: float, bottom: float) -> Iterator[str]:
    """Shade the times of faults through all rows."""
    for fault in chart.timeline.faults:
        x, width = _extent(chart, fault)
        yield (
            f'<rect class="band" x="{x}" y="{top - 6}" width="{width}" '
            f'height="{bottom - top + 6:.1f}"/>'
        )


def _extent(chart: Chart, fault: FaultSpan) -> tuple[float, float]:
    x = chart.x(fault.since_s)
    end_s = chart.timeline.length_s if fault.until_s is None else fault.until_s
    return x, max(2.0, round(chart.x(end_s) - x, 1))


def _faults(chart: Chart) -> None:
    chart.heading("Faults")
    targets = dict.fromkeys(fault.target for fault in chart.timeline.faults)
    if not targets:
        chart.parts.append(f'<text class="none" x="{LEFT}" y="{chart.y - 10}">none</text>')
    for target in targets:
        chart.label(target, chart.y + 14)
        for fault in chart.timeline.faults:
            if fault.target == target:
                chart.parts.append(_fault(chart, fault))
        chart.y += _FAULT_PX


def _fault(chart: Chart, fault: FaultSpan) -> str:
    x, width = _extent(chart, fault)
    until = "to the end" if fault.until_s is None else f"to {fault.until_s:.2f} s"
    word = fault.action.partition(":")[0]
    title = f"{fault.target} {fault.action}, {fault.since_s:.2f} s {until}"
    shown = _text_in(word, x, width, chart.y + 14)
    kind = "frozen" if word == "frozen" else "down"
    return (
        f'<g><rect class="fault {kind}" x="{x}" y="{chart.y + 2:.1f}" width="{width}" '
        f'height="{_FAULT_PX - 5}" rx="2"/>{shown}<title>{escape(title)}</title></g>'
    )


def _text_in(text: str, x: float, width: float, y: float) -> str:
    """Write into a bar, if it is long enough."""
    if len(text) * _LABEL_PX + 6 > width:
        return ""
    return f'<text class="inside" x="{x + 4}" y="{y:.1f}">{escape(text)}</text>'


def _leaders(chart: Chart, lanes: dict[str, float]) -> None:
    chart.heading("Partitions: leader and epoch, below it the ISR")
    brokers = sorted(
        {one for lane in chart.timeline.partitions for s in lane.spans for one in s.isr}
    )
    for lane in chart.timeline.partitions:
        lanes[lane.name] = chart.y
        chart.label(lane.name, chart.y + 14)
        for term in lane.terms():
            chart.parts.append(_leader(chart, lane.name, term, brokers))
        for span in lane.spans:
            chart.parts.append(_isr(chart, lane.name, span, brokers))
        chart.y += _PARTITION_PX


def _leader(chart: Chart, name: str, term: LeaderSpan, brokers: Sequence[int]) -> str:
    x, width = _reach(chart, term)
    short = f"none e{term.epoch}" if term.leader < 0 else f"{term.leader} e{term.epoch}"
    return (
        f'<g><rect class="leader {_colour(term.leader, brokers)}" x="{x}" y="{chart.y + 2:.1f}" '
        f'width="{width}" height="17"/>{_text_in(short, x, width, chart.y + 15)}'
        f"<title>{escape(_told(name, term))}</title></g>"
    )


def _isr(chart: Chart, name: str, span: LeaderSpan, brokers: Sequence[int]) -> str:
    x, width = _reach(chart, span)
    room = (_PARTITION_PX - 24) / max(1, len(brokers))
    lines = "".join(
        f'<rect class="isr {_colour(broker, brokers)}" x="{x}" '
        f'y="{chart.y + 21 + place * room:.1f}" width="{width}" height="{room - 1:.1f}"/>'
        for place, broker in enumerate(brokers)
        if broker in span.isr
    )
    return f"<g>{lines}<title>{escape(_told(name, span))}</title></g>"


def _reach(chart: Chart, span: LeaderSpan) -> tuple[float, float]:
    x = chart.x(span.since_s)
    return x, max(1.0, round(chart.x(span.until_s) - x, 1))


def _told(name: str, span: LeaderSpan) -> str:
    who = "no leader" if span.leader < 0 else f"broker {span.leader}"
    return (
        f"{name}: {who}, epoch {span.epoch}, ISR {list(span.isr)}, "
        f"{span.since_s:.2f} s to {span.until_s:.2f} s ({span.reason})"
    )


def _colour(broker: int, brokers: Sequence[int]) -> str:
    return "nobody" if broker not in brokers else f"b{brokers.index(broker) % 6}"


def _operations(chart: Chart, lanes: dict[str, float]) -> None:
    chart.heading("Operations: records by outcome")
    length_s = chart.timeline.length_s
    counted = [
        (lane, lane.buckets(length_s, bucket_count(length_s))) for lane in chart.timeline.operations
    ]
    most = max((sum(one.values()) for _, buckets in counted for one in buckets), default=1)
    for lane, buckets in counted:
        lanes[lane.name] = chart.y
        chart.label(lane.name, chart.y + _OPERATION_PX / 2 + 4)
        chart.parts += _columns(chart, lane.name, buckets, most)
        chart.y += _OPERATION_PX


def _columns(
    chart: Chart, name: str, buckets: Sequence[Mapping[str, int]], most: int
) -> Iterator[str]:
    """Stack the outcomes of each part of the time; what is rare is still seen."""
    base, room = chart.y + _OPERATION_PX - 3, _OPERATION_PX - 10
    width = WIDTH / len(buckets)
    yield f'<line class="base" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{base}" y2="{base}"/>'
    for place, bucket in enumerate(buckets):
        if not bucket:
            continue
        since_s = place * chart.timeline.length_s / len(buckets)
        shown = ", ".join(f"{count} {outcome}" for outcome, count in bucket.items())
        x, y, columns = LEFT + place * width, base, []
        for outcome in OUTCOMES:
            if outcome in bucket:
                height = max(3.0, room * bucket[outcome] / most)
                y -= height
                columns.append(
                    f'<rect class="{outcome}" x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" '
                    f'height="{height:.1f}"/>'
                )
        title = f"{name} from {since_s:.2f} s: {shown}"
        yield f"<g>{''.join(columns)}<title>{escape(title)}</title></g>"


def _marks(chart: Chart, lanes: dict[str, float]) -> Iterator[str]:
    """Mark each anomaly that has a time; its number leads back to the list.

    Those of one lane and about one time stand side by side, as far as there is room.
    """
    taken: dict[tuple[float, int], int] = {}
    for number, anomaly in chart.timeline.placed():
        assert anomaly.at_s is not None
        x, y = chart.x(anomaly.at_s), lanes[chart.timeline.lane_of(anomaly)]
        place = (y, int(x // _MARK_PX))
        before = taken[place] = taken.get(place, -1) + 1
        side = -_MARK_PX if x > LEFT + WIDTH / 2 else _MARK_PX
        middle = x + side * min(before, _MOST_BESIDE)
        line = f'<line x1="{x}" x2="{x}" y1="{y + 1:.1f}" y2="{y + _PARTITION_PX - 2:.1f}"/>'
        yield (
            f'<a href="#anomaly-{number}" class="mark" id="mark-{number}">'
            f"{'' if before else line}"
            f'<circle cx="{middle:.1f}" cy="{y + 10:.1f}" r="9"/>'
            f'<text x="{middle:.1f}" y="{y + 13.5:.1f}">{number}</text>'
            f"<title>{escape(str(anomaly))}</title></a>"
        )


def _moments(chart: Chart, top: float, bottom: float) -> Iterator[str]:
    """Draw the times of anomalies through all rows, to be compared with faults and leaders."""
    times = {chart.x(one.at_s) for _, one in chart.timeline.placed() if one.at_s is not None}
    for x in sorted(times)[:_MOST_MOMENTS]:
        yield f'<line class="moment" x1="{x}" x2="{x}" y1="{top - 6}" y2="{bottom}"/>'

"""The charts: timelines, curves, stacked columns. Pure: rows in, SVG out.

Colours come from the page's style by class (`wrong-…`, `cause-…`, `state-…`), so that one chart
works in light and dark mode. No information is in colours alone: spans have tooltips, and each
chart has a table beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leadline_spark.jobs.analytics.report.scales import LinearScale, TimeScale, nice_step
from leadline_spark.jobs.analytics.report.svg import WIDTH, box, drawing, line, tag, text

LEFT, RIGHT = 132.0, WIDTH - 12.0
AXIS = 26.0
"""The height of the time axis."""
_ROW, _BAR, _LETTER = 24.0, 14.0, 7.0
_CURVE = 150.0
_COLUMNS = 170.0


@dataclass(frozen=True, slots=True)
class Period:
    """The period of a chart, in Unix ms."""

    since: int
    until: int

    @property
    def scale(self) -> TimeScale:
        """The scale of a chart with labels on its left."""
        return TimeScale(self.since, self.until, LEFT, RIGHT)


@dataclass(frozen=True, slots=True)
class Bar:
    """A span in a row; `kind` is its class, `tooltip` what shows when the pointer rests on it.

    `label` is written into it, where there is room.
    """

    started_at: int
    ended_at: int
    kind: str
    tooltip: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A row of a timeline."""

    label: str
    bars: Sequence[Bar]


def timeline(
    key: str, title: str, description: str, period: Period, rows: Sequence[ChartRow]
) -> Markup:
    """Draw a timeline: rows of spans."""
    height = _ROW * len(rows)
    parts = [time_axis(period, 0, height), *_chart_rows(period, rows, 0)]
    return drawing(key, title, description, height + AXIS, *parts)


def overview(
    key: str,
    title: str,
    description: str,
    period: Period,
    curves: Mapping[str, Sequence[int]],
    rows: Sequence[ChartRow],
) -> Markup:
    """Draw curves of counts above a timeline, with one time axis."""
    top, gap = 20.0, 18.0
    bottom = top + _CURVE
    height = bottom + gap + _ROW * len(rows)
    most = max((max(curve, default=0) for curve in curves.values()), default=0)
    scale = LinearScale(most, nice_step(most), bottom, top)
    areas = [_area(curve, scale, f"wrong-{name}") for name, curve in curves.items()]
    parts = [
        time_axis(period, top, height),
        *_count_axis(scale, "partitions"),
        *areas,
        *_chart_rows(period, rows, bottom + gap),
    ]
    return drawing(key, title, description, height + AXIS, *parts)


def columns(
    key: str,
    title: str,
    description: str,
    period: Period,
    unit: str,
    series: Mapping[str, Sequence[int]],
    below: Mapping[str, Sequence[int]] | None = None,
) -> Markup:
    """Draw stacked columns of counts over time; those of `below` point downwards."""
    top = 20.0
    up, down = _highest(series), _highest(below or {})
    step = nice_step(max(up, down))
    # A unit has the same length below the line as above it.
    above, under = (LinearScale(most, step, 0, 1).end if most else 0.0 for most in (up, down))
    middle = top + _COLUMNS * (above or step) / ((above or step) + under)
    bottom = top + _COLUMNS
    upward = LinearScale(up, step, middle, top)
    parts = [time_axis(period, top, bottom), *_count_axis(upward, unit), *_stacked(series, upward)]
    if below and down:
        downward = LinearScale(down, step, middle, bottom)
        parts += [*_count_axis(downward, begin=1), *_stacked(below, downward)]
    parts.append(line(LEFT, middle, RIGHT, middle, "axis"))
    return drawing(key, title, description, bottom + AXIS, *parts)


def time_axis(period: Period, top: float, bottom: float) -> Markup:
    """Draw a line and a label for each round time."""
    parts = []
    for x, label in period.scale.ticks():
        parts.append(line(x, top, x, bottom))
        anchor = "start" if x < LEFT + 30 else "end" if x > RIGHT - 30 else "middle"
        parts.append(text(x, bottom + 17, label, "tick", anchor))
    parts.append(line(LEFT, bottom, RIGHT, bottom, "axis"))
    return Markup("").join(parts)


def _count_axis(scale: LinearScale, unit: str = "", *, begin: int = 0) -> list[Markup]:
    """Draw a line and a label for each round number, from tick `begin` on, and the unit."""
    parts = [text(LEFT - 8, scale.top - 9, unit, "small", "end")] if unit else []
    for y, label in list(scale.ticks())[begin:]:
        parts += [line(LEFT, y, RIGHT, y), text(LEFT - 8, y + 4, label, "tick", "end")]
    return parts


def _chart_rows(period: Period, rows: Sequence[ChartRow], top: float) -> list[Markup]:
    parts, scale = [], period.scale
    for number, row in enumerate(rows):
        y = top + number * _ROW
        middle = y + _ROW / 2
        label = text(LEFT - 8, middle + 4, _short(row.label), "lane", "end")
        parts.append(tag("g", tag("title", row.label), label))
        parts.append(box(LEFT, middle - _BAR / 2, RIGHT - LEFT, _BAR, "track", round_=2))
        for bar in row.bars:
            x, end = scale(bar.started_at), scale(bar.ended_at)
            # A minimum width keeps short spans visible.
            width = max(end - x, 1.5)
            x = min(x, RIGHT - width)
            parts.append(box(x, middle - _BAR / 2, width, _BAR, bar.kind, bar.tooltip))
            if bar.label and width > _LETTER * len(bar.label) + 4:
                parts.append(text(x + width / 2, middle + 4, bar.label, "inside", "middle"))
    return parts


def _short(label: str, most: int = 18) -> str:
    """Shorten a long name in the middle."""
    if len(label) <= most:
        return label
    return f"{label[: most // 2 - 1]}…{label[-(most // 2) :]}"


def _area(curve: Sequence[int], scale: LinearScale, kind: str) -> Markup:
    """Draw the area under a step curve; nothing if all counts are 0."""
    if not any(curve):
        return Markup("")
    width = (RIGHT - LEFT) / len(curve)
    path = [f"M{LEFT:.1f} {scale(0):.1f}"]
    for number, value in enumerate(curve):
        path.append(f"V{scale(value):.1f}H{LEFT + (number + 1) * width:.1f}")
    path.append(f"V{scale(0):.1f}Z")
    return tag("path", d="".join(path), class_=f"area {kind}")


def _highest(series: Mapping[str, Sequence[int]]) -> int:
    return max((sum(stack) for stack in zip(*series.values(), strict=True)), default=0)


def _stacked(series: Mapping[str, Sequence[int]], scale: LinearScale) -> list[Markup]:
    names = list(series)
    stacks = list(zip(*series.values(), strict=True))
    if not stacks:
        return []
    width = (RIGHT - LEFT) / len(stacks)
    parts = []
    for number, stack in enumerate(stacks):
        begun = 0
        for name, value in zip(names, stack, strict=True):
            if value:
                y, y_end = sorted((scale(begun), scale(begun + value)))
                tooltip = f"{name.replace('_', ' ')}: {value}"
                x = LEFT + number * width
                parts.append(box(x + 1, y, width - 2, y_end - y, f"cause-{name}", tooltip))
            begun += value
    return parts

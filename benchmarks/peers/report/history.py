"""All runs over time: a page with the ratios of each run, and a drawing of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from peers.report.document import Document
from peers.report.samples import ratio
from peers.sequences.case import BYTE_RATE, RECORD_RATE

CHART: Final = "ratios.svg"
WIDTH: Final = 160
HEIGHT: Final = 28
ROW: Final = 40
LABEL: Final = 520
PAD: Final = 14
INTRODUCTION: Final = f"""\
# Leadline beside Kafka, over time

Written by `make bench-peers`, which adds a run. Each cell is ours/peer. A run is linked to its
page; the JSON document beside that has every sample. The drawing has a line for each row, with the
oldest run on the left, on a logarithmic scale; the grey line is a ratio of 1. It leaves out quick
runs.

![Ratios over time]({CHART})
"""
Key = tuple[str, str]
Ratios = Mapping[Key, float]
"""Ours/peer by figure and peer."""


def ratios_of(document: Document) -> dict[Key, float]:
    """Return the ratio of each figure to each peer; not of bytes where records say the same."""
    ours = {one.key: one for one in document.samples if one.is_ours}
    counted = {one.work for one in document.samples if one.metric == RECORD_RATE}
    found: dict[Key, float] = {}
    for peer in document.samples:
        own = ours.get(peer.key)
        if peer.metric == BYTE_RATE and peer.work in counted:
            continue
        if own is not None and own is not peer and (quotient := ratio(own, peer)):
            better = "more" if peer.metric.more_is_better else "less"
            what = ": ".join(part for part in (peer.work, peer.metric.name) if part)
            found[f"{what} ({better} is better)", peer.side] = quotient
    return found


def page(documents: Sequence[Document]) -> str:
    """Return README.md of the results: a column for each run, the newest first."""
    runs = sorted(documents, key=lambda one: one.began, reverse=True)
    ratios = [ratios_of(one) for one in runs]
    heads = [f"[{one.began[:10]}]({one.name}.md){' (quick)' * one.is_quick}" for one in runs]
    if not runs:
        return INTRODUCTION
    lines = [
        INTRODUCTION,
        f"| | peer | {' | '.join(heads)} |",
        f"|---|---|{'---|' * len(runs)}",
    ]
    for key in _keys(ratios):
        cells = [f"{one[key]:.2f}" if key in one else "" for one in ratios]
        lines.append(f"| {key[0]} | {key[1]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def chart(documents: Sequence[Document]) -> str:
    """Return the drawing of all runs that were not quick, as SVG."""
    runs = sorted((one for one in documents if not one.is_quick), key=lambda one: one.began)
    ratios = [ratios_of(one) for one in runs]
    keys = _keys(ratios)
    height = max(ROW, ROW * len(keys))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 90}" height="{height}">',
        "<style>text { font: 12px sans-serif }</style>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, key in enumerate(keys):
        values = [one.get(key) for one in ratios]
        parts += _line(number * ROW + PAD / 2, f"{key[0]}, {key[1]}", values)
    return "\n".join([*parts, "</svg>", ""])


def _line(top: float, label: str, values: Sequence[float | None]) -> list[str]:
    """Draw one row: its label, a ratio of 1, the runs, and the newest value."""
    known = [value for value in values if value is not None]
    reach = max(1.0, *(abs(math.log2(value)) for value in known))
    step = WIDTH / max(1, len(values) - 1)
    points = [
        (LABEL + number * step, top + HEIGHT / 2 * (1 - math.log2(value) / reach))
        for number, value in enumerate(values)
        if value is not None
    ]
    middle = top + HEIGHT / 2
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return [
        f'<text x="{LABEL - PAD}" y="{middle + 4}" text-anchor="end">{_escaped(label)}</text>',
        f'<line x1="{LABEL}" y1="{middle}" x2="{LABEL + WIDTH}" y2="{middle}" stroke="#bbb"/>',
        f'<polyline points="{drawn}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1f6feb"/>',
        f'<text x="{LABEL + WIDTH + PAD}" y="{middle + 4}">{known[-1]:.2f}</text>',
    ]


def _keys(ratios: Sequence[Ratios]) -> list[Key]:
    """Return all figures, in the order in which they were first measured."""
    return list(dict.fromkeys(key for one in ratios for key in one))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

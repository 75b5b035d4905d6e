"""The page and the drawing of all runs, made from their JSON documents."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from peers.report.document import Document, decode, encode, read_all
from peers.report.history import chart, page, ratios_of
from peers.sequences.case import BYTE_RATE, RECORD_RATE
from tests.unit.peers.runs import LATENCY, document, samples

SVG = "{http://www.w3.org/2000/svg}"


def run(began: str, ours: float, *, is_quick: bool = False) -> Document:
    return document(
        samples("kafka", 10, client="aiokafka"),
        samples("leadline", ours, client="leadline"),
        began=began,
        is_quick=is_quick,
    )


OLD = run("2026-11-01T10:00:00", 5)
NEW = run("2026-12-01T10:00:00", 20)


def test_documents_are_read_as_they_were_written_oldest_first(tmp_path: Path) -> None:
    for one in (NEW, OLD):
        (tmp_path / f"{one.name}.json").write_bytes(encode(one))

    assert read_all(tmp_path) == [OLD, NEW]
    assert OLD.name == "2026-11-01-1000-0123456789"


def test_a_document_of_another_format_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(b'{"began": "2026-11-01T10:00:00"}')


def test_the_page_has_a_column_for_each_run_the_newest_first() -> None:
    lines = page([OLD, NEW]).splitlines()

    head = next(line for line in lines if line.startswith("| | peer |"))
    assert head.index("2026-12-01-1000-0123456789.md") < head.index("2026-11-01-1000-")
    assert "| produce: records (more is better) | kafka aiokafka | 2.00 | 0.50 |" in lines


def test_a_figure_that_one_run_lacks_leaves_a_gap() -> None:
    more = document(
        samples("kafka", 4, metric=LATENCY), samples("leadline", 1, metric=LATENCY), began="2027"
    )

    lines = page([OLD, more]).splitlines()

    assert "| produce: latency, p50 (less is better) | kafka | 0.25 |  |" in lines
    assert "| produce: records (more is better) | kafka aiokafka |  | 0.50 |" in lines


def test_bytes_are_left_out_where_records_say_the_same() -> None:
    both = [samples(side, 2, metric=BYTE_RATE) for side in ("kafka", "leadline")]
    whole_batches = [
        samples(side, 2, metric=BYTE_RATE, work="raw") for side in ("kafka", "leadline")
    ]
    counted = [samples(side, 2, metric=RECORD_RATE) for side in ("kafka", "leadline")]

    found = ratios_of(document(*both, *whole_batches, *counted))

    assert list(found) == [
        ("raw: bytes of values (more is better)", "kafka"),
        ("produce: records (more is better)", "kafka"),
    ]


def test_the_drawing_goes_up_with_the_ratio_and_leaves_quick_runs_out() -> None:
    quick = run("2026-12-02T10:00:00", 1_000, is_quick=True)

    drawing = ET.fromstring(chart([NEW, quick, OLD]))  # noqa: S314 - our own text

    (line,) = drawing.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert len(points) == 2
    assert points[0][0] < points[1][0]
    assert points[0][1] > points[1][1]
    assert [text.text for text in drawing.iter(f"{SVG}text")] == [
        "produce: records (more is better), kafka aiokafka",
        "2.00",
    ]


@pytest.mark.parametrize("runs", [[], [run("2026", 1, is_quick=True)]])
def test_a_drawing_of_nothing_is_a_drawing(runs: list[Document]) -> None:
    assert ET.fromstring(chart(runs)).tag == f"{SVG}svg"  # noqa: S314 - our own text

"""The page of one run."""

from __future__ import annotations

from peers.report.table import page, table
from tests.unit.peers.runs import LATENCY, document, samples


def rows(text: str) -> list[list[str]]:
    """Return the cells of all rows below the head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_each_peer_has_a_row_beside_ours() -> None:
    found = (
        samples("kafka-sync", 100, 102, 120, client="aiokafka"),
        samples("kafka-sync", 306, 306, 306, client="confluent"),
        samples("leadline", 50, 51, 90, client="leadline"),
    )

    what, ours = ["produce: records", "thousand/s", "more"], "51.0 (50.0-90.0)"
    assert rows(table(found)) == [
        [*what, ours, "102 (100-120)", "kafka-sync aiokafka", "**0.50**"],
        [*what, ours, "306 (306-306)", "kafka-sync confluent", "**0.17**"],
    ]


def test_a_side_without_samples_leaves_its_cells_empty() -> None:
    found = (
        samples("kafka", 7, client="aiokafka", metric=LATENCY),
        samples("leadline", 8, client="leadline", work="consume"),
    )

    assert rows(table(found)) == [
        ["consume: records", "thousand/s", "more", "8", "-", "", ""],
        ["produce: latency, p50", "ms", "less", "-", "7", "kafka aiokafka", ""],
    ]


def test_the_page_says_what_the_figures_depend_on() -> None:
    text = page(document(samples("leadline", 1)))

    for fact in ("0123456789+", "0.5 0.4 0.3 / 2.5 2.0 1.0", "2 cores", "ext4", "openjdk 17"):
        assert fact in text
    assert "quick run" not in text
    assert "Failed" not in text


def test_a_quick_run_and_its_failures_are_seen() -> None:
    text = page(document(samples("leadline", 1), is_quick=True, failures=("raw:\n  it broke",)))

    assert "**A quick run" in text
    assert "- raw: it broke\n" in text

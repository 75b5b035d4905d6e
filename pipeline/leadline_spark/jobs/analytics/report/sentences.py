"""The texts of the report: the verdict, the tiles, and the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leadline_spark.jobs.analytics.report import words

CAUSES = {
    "failure": "broker failed",
    "unclean": "unclean election",
    "recovery": "led again",
    "controlled_shutdown": "controlled shutdown",
    "drain": "drain",
    "reassignment": "reassignment",
    "preferred": "preferred leader",
    "lost": "left without leader",
    "lagging": "fell behind",
    "caught_up": "caught up",
}
WRONG = {
    "no_leader": "no leader",
    "below_min_isr": "below min ISR",
    "under_replicated": "under-replicated",
}
STATES = {"up": "up", "failed": "down by failure", "planned": "down by plan"}


@dataclass(frozen=True, slots=True)
class Tile:
    """A number with its name; `tone` is good, bad or plain."""

    name: str
    value: str
    note: str
    tone: str = "plain"


def verdict(figures: Mapping[str, Any]) -> list[str]:
    """Return what happened, in a few sentences."""
    partitions, leadership = figures["partitions"], figures["leadership"]
    gaps = partitions["no_leader"]
    lines = [
        (
            f"In {words.duration(figures['period']['duration_ms'])}, "
            f"{words.plural(partitions['count'], 'partition')} had a leader for "
            f"{words.share(partitions['availability'])} of the time."
        )
    ]
    missing = figures["period"]["missing"]
    if missing:
        lines.append(
            f"{words.plural(missing, 'entry', 'entries')} of the history in between "
            f"{'is' if missing == 1 else 'are'} missing: what happened there is not counted."
        )
    unclean = leadership["by_cause"]["unclean"]
    if unclean:
        lines.append(
            f"{words.plural(unclean, 'unclean election').capitalize()} may have lost records that "
            "were acknowledged."
        )
    if gaps["spans"]:
        open_ = ", still open at the end" if gaps["censored"] == gaps["spans"] == 1 else ""
        if gaps["censored"] and not open_:
            open_ = f"; {gaps['censored']} of them still open at the end"
        there = "There was" if gaps["spans"] == 1 else "There were"
        lines.append(
            f"{there} {words.plural(gaps['spans'], 'gap')} without leader, "
            f"the longest {words.duration(gaps['longest_ms'])}{open_}."
        )
    brokers, failovers = figures["brokers"], figures["controllers"]["failovers"]
    lines.append(
        f"{words.plural(brokers['failures'], 'broker failure').capitalize()}, "
        f"{words.plural(brokers['planned_stops'], 'planned stop')}, "
        f"{words.plural(failovers, 'controller failover')}."
    )
    return lines


def tiles(figures: Mapping[str, Any]) -> list[Tile]:
    """Return the most important numbers."""
    partitions, brokers, elections = figures["partitions"], figures["brokers"], figures["elections"]
    leadership, moves = figures["leadership"], figures["reassignments"]
    below, missing = partitions["below_min_isr"], partitions["under_replicated"]
    unclean, gaps = leadership["by_cause"]["unclean"], partitions["no_leader"]
    unplanned = leadership["changes"] - leadership["planned"]
    return [
        Tile(
            "Availability",
            words.share(partitions["availability"]),
            f"{words.duration(gaps['union_ms'])} with a partition that had no leader",
            "good" if not gaps["spans"] else "bad",
        ),
        Tile(
            "Unclean elections",
            words.count(unclean),
            "each may lose acknowledged records",
            "bad" if unclean else "good",
        ),
        Tile(
            "Below min ISR",
            words.duration(below["union_ms"]),
            f"{words.duration(below['partition_ms'])} summed over partitions",
            "bad" if below["spans"] else "good",
        ),
        Tile(
            "Under-replicated",
            words.duration(missing["union_ms"]),
            f"{words.duration(missing['partition_ms'])} summed over partitions",
        ),
        Tile(
            "Leader changes",
            words.count(leadership["changes"]),
            f"{words.count(unplanned)} of them unplanned",
        ),
        Tile(
            "Time to decide",
            words.duration(elections["decision_p99_ms"]),
            f"99th percentile; median {words.duration(elections['decision_p50_ms'])}",
        ),
        Tile(
            "Brokers: MTBF",
            words.duration(brokers["mtbf_ms"]),
            f"MTTR {words.duration(brokers['mttr_ms'])}; "
            + words.plural(brokers["failures"], "failure"),
        ),
        Tile(
            "Replicas moved",
            words.rate(moves["bytes_per_s"]),
            f"{words.size(moves['moved_bytes'])} in {words.plural(moves['tasks'], 'task')}",
        ),
    ]

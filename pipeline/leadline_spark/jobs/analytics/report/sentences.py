"""The texts of the report: the verdict, the tiles, the names, the definitions."""

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

DEFINITIONS = (
    (
        "Availability",
        (
            "1 - (time without leader, summed over partitions) / (time observed, summed over "
            "partitions). A partition is observed from its first leader until it is deleted."
        ),
    ),
    (
        "No leader",
        (
            "From the change that left a partition without leader to the one that gave it "
            "one. The union is the time in which at least one partition had none. A leader that "
            "died counts as one until its session has expired: nobody knew before."
        ),
    ),
    (
        "Below min ISR",
        (
            "A leader, but fewer in-sync replicas than min(min.insync.replicas, replicas): "
            "writes with acks=all were refused. Time without leader is not counted again."
        ),
    ),
    (
        "Under-replicated",
        (
            "No leader, or a replica of the assignment is not in the ISR. Replicas that a "
            "reassignment is still adding do not count as missing."
        ),
    ),
    (
        "Leader changes",
        (
            "Another broker became leader, by cause. Partitions left without leader are "
            "counted apart; new partitions and new epochs of the same leader are not counted."
        ),
    ),
    (
        "Time to decide",
        (
            "From the news reaching the controller to its write, for each leader change. It "
            "does not include the time until a session expires, nor the write itself."
        ),
    ),
    (
        "MTBF, MTTR",
        (
            "MTBF = time up / failures. MTTR = time down by failure / repairs. Outages that "
            "were asked for (controlled shutdown, drain) are in neither. Open spans count in "
            "the times, not in the numbers: the maximum-likelihood estimate under censoring."
        ),
    ),
    (
        "Reassignments",
        (
            "From a task's acceptance to its end; a partition's move from its first order to "
            "its last step. Rate = bytes / time in which it moved; bytes are those that "
            "leaders reported, so that replicas which caught up between two heartbeats are "
            "missing."
        ),
    ),
    (
        "Controller failovers",
        (
            "Terms of active controllers, but for the very first. Take-over: from the "
            "election to the last write that is due then."
        ),
    ),
    (
        "Percentiles",
        (
            "Interpolated linearly between the two nearest ranks. What was not over at the "
            "end of the period is cut off there, marked, and left out of percentiles."
        ),
    ),
)


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
            f"{words.count(unplanned)} of them nobody asked for",
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

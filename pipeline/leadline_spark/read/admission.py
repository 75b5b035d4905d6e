"""How much of what waits a micro-batch takes. Pure.

Partitions share a limit in proportion to what waits in each, as in Kafka's source, but none that
has anything gets nothing: the smallest would starve as long as the largest are busy.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline_spark.read.offsets import TopicPartition

Amounts = Mapping[TopicPartition, int]
"""Offsets, or numbers of offsets, by partition."""


def waiting(starts: Amounts, ends: Amounts) -> dict[TopicPartition, int]:
    """Return how many offsets wait in each partition that has any; `starts` names all of `ends`."""
    counts = {place: end - starts[place] for place, end in ends.items()}
    return {place: count for place, count in counts.items() if count > 0}


def share(amounts: Amounts, most: int) -> dict[TopicPartition, int]:
    """Share `most` in proportion to the amounts, at least 1 each; all of it where it is enough.

    The shares add up to `most`, unless there are more partitions than that. Those whose share would
    be less than 1 have that, and the others share the rest; what rounding leaves over goes to the
    largest remainders, of equal ones to the first.
    """
    if sum(amounts.values()) <= most:
        return dict(amounts)
    shares: dict[TopicPartition, int] = {}
    others = sorted(amounts)
    while others:
        left, total = most - len(shares), sum(amounts[place] for place in others)
        small = [place for place in others if amounts[place] * left < total]
        if not small:
            return shares | _rounded({place: amounts[place] * left for place in others}, total)
        shares |= dict.fromkeys(small, 1)
        others = [place for place in others if place not in shares]
    return shares


def _rounded(numerators: Amounts, denominator: int) -> dict[TopicPartition, int]:
    """Return whole numbers near these fractions that have the same sum, which is whole."""
    parts = {place: divmod(number, denominator) for place, number in numerators.items()}
    left = sum(numerators.values()) // denominator - sum(whole for whole, _ in parts.values())
    by_remainder = sorted(parts, key=lambda place: (-parts[place][1], place))
    up = set(by_remainder[:left])
    return {place: whole + (place in up) for place, (whole, _) in parts.items()}


def share_bytes(
    amounts: Amounts, most_bytes: int, mean_bytes: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Share bytes as `share` does, and return how many offsets of each partition they hold.

    `mean_bytes` is the mean stored size of an offset; a partition without one is not limited.
    """
    known = {place: mean_bytes[place] for place in amounts if mean_bytes.get(place, 0.0) > 0.0}
    sizes = {place: max(1, round(amounts[place] * mean)) for place, mean in known.items()}
    shares = share(sizes, most_bytes)
    # A whole share is the whole amount: what rounding takes off would wait for no reason.
    short = [place for place in shares if shares[place] < sizes[place]]
    limits = {place: max(1, int(shares[place] / known[place])) for place in short}
    return {place: min(count, limits.get(place, count)) for place, count in amounts.items()}


def holds_back(counts: Amounts, least: int | None, elapsed_ms: float | None, delay_ms: int) -> bool:
    """Tell whether a micro-batch waits for more: fewer than `least` offsets, and not for too long.

    `elapsed_ms` is the time since the last micro-batch, None before the first, which never waits.
    """
    if least is None or elapsed_ms is None:
        return False
    return sum(counts.values()) < least and elapsed_ms < delay_ms

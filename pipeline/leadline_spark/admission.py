"""How much of what waits a micro-batch takes. Pure.

Partitions share a limit in proportion to what waits in each, as in Kafka's source, but none that
has anything gets nothing: the smallest would starve as long as the largest are busy.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline_spark.offsets import TopicPartition

Amounts = Mapping[TopicPartition, int]
"""Offsets, or numbers of offsets, by partition."""


def waiting(starts: Amounts, ends: Amounts) -> dict[TopicPartition, int]:
    """Return how many offsets wait in each partition that has any; `starts` names all of `ends`."""
    counts = {place: end - starts[place] for place, end in ends.items()}
    return {place: count for place, count in counts.items() if count > 0}


def share(amounts: Amounts, most: int) -> dict[TopicPartition, int]:
    """Share `most` in proportion to the amounts, at least 1 each; all of it where it is enough.

    The shares add up to `most`, unless there are more partitions than that. What rounding leaves
    over goes to the largest remainders, what raising to 1 takes too much comes from the largest
    shares; of equal ones the first.
    """
    total = sum(amounts.values())
    if total <= most:
        return dict(amounts)
    places = sorted(amounts)
    shares = {place: max(1, amounts[place] * most // total) for place in places}
    left = most - sum(shares.values())
    by_remainder = sorted(places, key=lambda place: (-(amounts[place] * most % total), place))
    rounded = [place for place in by_remainder if amounts[place] * most >= total]
    for place in rounded[: max(0, left)]:
        shares[place] += 1
    for place in sorted(places, key=lambda place: (-shares[place], place)):
        taken = min(max(0, -left), shares[place] - 1)
        shares[place] -= taken
        left += taken
    return shares


def share_bytes(
    amounts: Amounts, most_bytes: int, mean_bytes: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Share bytes as `share` does, and return how many offsets of each partition they hold.

    `mean_bytes` is the mean stored size of an offset; a partition without one is not limited.
    """
    known = {place: mean_bytes[place] for place in amounts if mean_bytes.get(place, 0.0) > 0.0}
    sizes = {place: max(1, round(amounts[place] * mean)) for place, mean in known.items()}
    shares = share(sizes, most_bytes)
    limits = {place: max(1, int(shares[place] / mean)) for place, mean in known.items()}
    return {place: min(count, limits.get(place, count)) for place, count in amounts.items()}


def holds_back(counts: Amounts, least: int | None, elapsed_ms: float | None, delay_ms: int) -> bool:
    """Tell whether a micro-batch waits for more: fewer than `least` offsets, and not for too long.

    `elapsed_ms` is the time since the last micro-batch, None before the first, which never waits.
    """
    if least is None or elapsed_ms is None:
        return False
    return sum(counts.values()) < least and elapsed_ms < delay_ms

"""How much of what waits a micro-batch takes. Pure.

Partitions share a limit in proportion to what waits in each, as in Kafka's source, but none that
has anything gets nothing: the smallest would starve as long as the largest are busy.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline_client.wire import TopicPartition

Amounts = Mapping[TopicPartition, int]
"""Offsets, or numbers of offsets, by partition."""


def waiting(starts: Amounts, ends: Amounts) -> dict[TopicPartition, int]:
    """Return how many offsets wait in each partition that has any; `starts` names all of `ends`."""
    counts = {
        topic_partition: end - starts[topic_partition] for topic_partition, end in ends.items()
    }
    return {topic_partition: count for topic_partition, count in counts.items() if count > 0}


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
        left, total = (
            most - len(shares),
            sum(amounts[topic_partition] for topic_partition in others),
        )
        small = [
            topic_partition for topic_partition in others if amounts[topic_partition] * left < total
        ]
        if not small:
            return shares | _rounded(
                {topic_partition: amounts[topic_partition] * left for topic_partition in others},
                total,
            )
        shares |= dict.fromkeys(small, 1)
        others = [topic_partition for topic_partition in others if topic_partition not in shares]
    return shares


def _rounded(numerators: Amounts, denominator: int) -> dict[TopicPartition, int]:
    """Return whole numbers near these fractions that have the same sum, which is whole."""
    parts = {
        topic_partition: divmod(number, denominator)
        for topic_partition, number in numerators.items()
    }
    left = sum(numerators.values()) // denominator - sum(whole for whole, _ in parts.values())
    by_remainder = sorted(
        parts, key=lambda topic_partition: (-parts[topic_partition][1], topic_partition)
    )
    up = set(by_remainder[:left])
    return {
        topic_partition: whole + (topic_partition in up)
        for topic_partition, (whole, _) in parts.items()
    }


def share_bytes(
    amounts: Amounts, most_bytes: int, mean_bytes: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Share bytes as `share` does, and return how many offsets of each partition they hold.

    `mean_bytes` is the mean stored size of an offset; a partition without one is not limited.
    """
    known = {
        topic_partition: mean_bytes[topic_partition]
        for topic_partition in amounts
        if mean_bytes.get(topic_partition, 0.0) > 0.0
    }
    sizes = {
        topic_partition: max(1, round(amounts[topic_partition] * mean))
        for topic_partition, mean in known.items()
    }
    shares = share(sizes, most_bytes)
    # A whole share is the whole amount: what rounding takes off would wait for no reason.
    short = [
        topic_partition
        for topic_partition in shares
        if shares[topic_partition] < sizes[topic_partition]
    ]
    limits = {
        topic_partition: max(1, int(shares[topic_partition] / known[topic_partition]))
        for topic_partition in short
    }
    return {
        topic_partition: min(count, limits.get(topic_partition, count))
        for topic_partition, count in amounts.items()
    }


def holds_back(counts: Amounts, least: int | None, elapsed_ms: float | None, delay_ms: int) -> bool:
    """Tell whether a micro-batch waits for more: fewer than `least` offsets, and not for too long.

    `elapsed_ms` is the time since the last micro-batch, None before the first, which never waits.
    """
    if least is None or elapsed_ms is None:
        return False
    return sum(counts.values()) < least and elapsed_ms < delay_ms

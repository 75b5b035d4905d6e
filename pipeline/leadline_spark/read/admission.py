"""How many of the available offsets a micro-batch takes. Pure.

Partitions share a limit in proportion to the offsets that each has, as in Kafka's source. Each that
has any gets at least one, or the smallest would get nothing as long as the largest are busy.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline_client.wire import TopicPartition

Amounts = Mapping[TopicPartition, int]
"""Offsets, or numbers of offsets, by partition."""


def available(starts: Amounts, ends: Amounts) -> dict[TopicPartition, int]:
    """Return the number of unread offsets of each partition that has any.

    `starts` has all partitions of `ends`.
    """
    counts = {tp: end - starts[tp] for tp, end in ends.items()}
    return {topic_partition: count for topic_partition, count in counts.items() if count > 0}


def share(amounts: Amounts, limit: int) -> dict[TopicPartition, int]:
    """Share `limit` in proportion to the amounts, at least 1 each; return all if it suffices.

    The shares add up to `limit`, unless there are more partitions than that. A share below 1 is
    raised to 1, and the other partitions share the rest. What rounding leaves over goes to the
    largest remainders, and among equal ones to the first.
    """
    if sum(amounts.values()) <= limit:
        return dict(amounts)
    shares: dict[TopicPartition, int] = {}
    others = sorted(amounts)
    while others:
        left, total = limit - len(shares), sum(amounts[tp] for tp in others)
        small = [tp for tp in others if amounts[tp] * left < total]
        if not small:
            return shares | _rounded({tp: amounts[tp] * left for tp in others}, total)
        shares |= dict.fromkeys(small, 1)
        others = [tp for tp in others if tp not in shares]
    return shares


def _rounded(numerators: Amounts, denominator: int) -> dict[TopicPartition, int]:
    """Round these fractions so that their sum, which is whole, stays the same."""
    parts = {tp: divmod(number, denominator) for tp, number in numerators.items()}
    left = sum(numerators.values()) // denominator - sum(whole for whole, _ in parts.values())
    by_remainder = sorted(parts, key=lambda tp: (-parts[tp][1], tp))
    up = set(by_remainder[:left])
    return {tp: whole + (tp in up) for tp, (whole, _) in parts.items()}


def share_bytes(
    amounts: Amounts, limit_bytes: int, mean_bytes: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Share bytes as `share` does, and return how many offsets of each partition that allows.

    `mean_bytes` is the mean stored size of an offset; a partition without one is not limited.
    """
    known = {tp: mean_bytes[tp] for tp in amounts if mean_bytes.get(tp, 0.0) > 0.0}
    sizes = {tp: max(1, round(amounts[tp] * mean)) for tp, mean in known.items()}
    shares = share(sizes, limit_bytes)
    # A partition that gets all its bytes takes all its offsets, whatever the rounding.
    short = [tp for tp in shares if shares[tp] < sizes[tp]]
    limits = {tp: max(1, int(shares[tp] / known[tp])) for tp in short}
    return {tp: min(count, limits.get(tp, count)) for tp, count in amounts.items()}


def holds_back(counts: Amounts, least: int | None, elapsed_ms: float | None, delay_ms: int) -> bool:
    """Return whether a micro-batch waits for `least` offsets, at most for `delay_ms`.

    `elapsed_ms` is the time since the last micro-batch, None before the first, which never waits.
    """
    if least is None or elapsed_ms is None:
        return False
    return sum(counts.values()) < least and elapsed_ms < delay_ms

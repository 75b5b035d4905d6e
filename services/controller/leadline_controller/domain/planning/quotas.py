"""How many replicas each broker should have: as even as the racks allow.

Method: brokers are filled to one level; a rack that cannot take its share, or has to
take more, keeps its bound, and the others share the rest. Of brokers on one level
those that have the most get the remainder, because that moves the least.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline_controller.domain.planning.racks import RackRule


def even_quotas(
    have: Mapping[int, int], factors: Mapping[int, int], rule: RackRule
) -> dict[int, int]:
    """Share all replicas among the brokers of `have`.

    `factors` maps numbers of replicas to how many partitions have so many there.
    """
    total = sum(factor * partitions for factor, partitions in factors.items())
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(have, key=lambda broker: (-have[broker], broker)):
        racks.setdefault(rule.racks.get(broker) if rule.applies else None, []).append(broker)
    bounds = {rack: rule.bounds(rack, factors) for rack in racks}

    def filled(level: int) -> dict[str | None, int]:
        return {
            rack: min(max(level * len(brokers), bounds[rack][0]), bounds[rack][1])
            for rack, brokers in racks.items()
        }

    low, high = 0, total + 1
    while high - low > 1:
        middle = (low + high) // 2
        if sum(filled(middle).values()) <= total:
            low = middle
        else:
            high = middle
    shares = filled(low)
    above = filled(low + 1)
    rest = total - sum(shares.values())
    for rack in sorted(racks, key=lambda rack: -have[racks[rack][0]]):
        raised = min(rest, above[rack] - shares[rack])
        shares[rack] += raised
        rest -= raised
    return {
        broker: shares[rack] // len(brokers) + (place < shares[rack] % len(brokers))
        for rack, brokers in racks.items()
        for place, broker in enumerate(brokers)
    }

"""Placement of new partitions on brokers: Kafka's rack-aware round robin.

Goals, in order: replicas of a partition on different brokers; in different racks, as
far as there are enough racks; first replicas (preferred leaders) spread evenly; the
other replicas of a broker's partitions spread over all other brokers.

Method (Kafka's AdminUtils.assignReplicasToBrokers, with the same results for the same
inputs): first replicas go round robin over the broker list, starting at `start_index`.
The other replicas follow at a distance that starts at `shift` and grows by one with
every full round of the list. With racks, the list alternates between racks, and a
broker is skipped while its rack has a replica and another rack has none.

Example: brokers 0-4, three replicas, start 0, shift 0:
p0 (0, 1, 2), p1 (1, 2, 3), ... p4 (4, 0, 1), p5 (0, 2, 3), p6 (1, 3, 4), ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from leadline_client.errors import PolicyViolation


def assign_replicas(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int = 0,
    shift: int | None = None,
    start_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Return replicas for `partitions` new partitions, numbered from `start_partition`.

    `brokers` maps broker ids to racks; without racks, its order is the order of the
    round robin. `shift` defaults to `start_index`, as in Kafka.

    Raises:
        PolicyViolation: a count is not positive, there are fewer brokers than
            replicas, or only some of the brokers have a rack.

    """
    _check_counts(len(brokers), partitions, replication_factor)
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if racks and len(racks) < len(brokers):
        bare = sorted(set(brokers) - set(racks))
        raise PolicyViolation(f"brokers {bare} have no rack, but other brokers have one")
    ring = alternate_racks(racks) if racks else list(brokers)
    first_shift = start_index if shift is None else shift
    rack_count = len(set(racks.values()))
    return {
        partition: _replicas(
            ring,
            racks,
            rack_count,
            replication_factor,
            first=(partition + start_index) % len(ring),
            shift=first_shift + _rounds_begun(partition, start_partition, len(ring)),
        )
        for partition in range(start_partition, start_partition + partitions)
    }


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Order the brokers so that neighbours are in different racks, as far as possible.

    Example: racks a (0, 1), b (2, 3), c (4): 0, 2, 4, 1, 3.
    """
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rows = [by_rack[rack] for rack in sorted(by_rack)]
    depth = max(map(len, rows), default=0)
    return [row[place] for place in range(depth) for row in rows if place < len(row)]


def _check_counts(brokers: int, partitions: int, replication_factor: int) -> None:
    if partitions < 1:
        raise PolicyViolation(f"the number of partitions must be positive, not {partitions}")
    if replication_factor < 1:
        raise PolicyViolation(f"the replication factor must be positive, not {replication_factor}")
    if replication_factor > brokers:
        raise PolicyViolation(
            f"replication factor {replication_factor} is larger than the number of "
            f"available brokers, {brokers}"
        )


def _rounds_begun(partition: int, start_partition: int, brokers: int) -> int:
    """Count the multiples of `brokers` in [start_partition, partition], except zero."""
    return partition // brokers - max(start_partition - 1, 0) // brokers


def _replicas(
    ring: Sequence[int],
    racks: Mapping[int, str],
    rack_count: int,
    replication_factor: int,
    *,
    first: int,
    shift: int,
) -> tuple[int, ...]:
    chosen = {ring[first]: None}  # ordered, and quick to search
    used_racks = {racks.get(ring[first])}
    begin, others = shift * (rack_count or 1), len(ring) - 1
    for step in count():
        if len(chosen) == replication_factor:
            return tuple(chosen)
        broker = ring[(first + 1 + (begin + step) % others) % len(ring)]
        rack = racks.get(broker)
        rack_is_free = not racks or rack not in used_racks or len(used_racks) == rack_count
        if rack_is_free and broker not in chosen:
            chosen[broker] = None
            used_racks.add(rack)
    raise AssertionError("count() never ends")

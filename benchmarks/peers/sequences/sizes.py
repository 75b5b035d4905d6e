"""How much is done: enough for figures that mean something, or just enough to see that it works."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """The amounts of one run. Records and bytes are those of one round of one side."""

    data_rounds: int = 5
    warm_up_rounds: int = 1
    """Rounds before these that do not count, in which a JVM compiles what it runs often."""
    cluster_rounds: int = 3
    small_records: int = 300_000
    large_records: int = 60_000
    batch_bytes: int = 64_000_000
    single_records: int = 1_500
    """By one client; more clients send more (`single_records`)."""
    paced_records: int = 2_000
    topics: int = 100
    partitions: int = 100
    """Of each of these topics."""
    members: int = 100
    idle_s: float = 10.0
    session_ms: int = 2_000
    """The timeout of ZooKeeper sessions of clusters that are changed or broken."""


QUICK = Sizes(
    data_rounds=2,
    warm_up_rounds=0,
    cluster_rounds=1,
    small_records=20_000,
    large_records=4_000,
    batch_bytes=8_000_000,
    single_records=100,
    paced_records=300,
    topics=5,
    partitions=20,
    members=10,
    idle_s=3.0,
    session_ms=6_000,
)

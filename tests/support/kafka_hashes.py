"""What Kafka's own tests expect of its hash of keys, which every producer here has to share."""

from __future__ import annotations

from typing import Final

MURMUR2: Final = (
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
)
"""Pairs of a key and its hash as a signed 32-bit integer (UtilsTest of Kafka's client)."""

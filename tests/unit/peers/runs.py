"""Documents of runs that never were."""

from __future__ import annotations

from peers.machine import Machine
from peers.report.document import Document
from peers.report.samples import Metric, Samples
from peers.sequences.sizes import Sizes

RATE = Metric("records", "thousand/s", more_is_better=True)
LATENCY = Metric("latency, p50", "ms")


def samples(
    system: str, *values: float, client: str = "", metric: Metric = RATE, work: str = "produce"
) -> Samples:
    """Return the samples of one side."""
    return Samples("produce", work, metric, system, client, values)


def document(
    *found: Samples,
    began: str = "2026-11-26T04:31:00",
    is_quick: bool = False,
    failures: tuple[str, ...] = (),
) -> Document:
    """Return a run with these samples."""
    return Document(
        began=began,
        ended="2026-11-26T05:31:00",
        commit="0123456789+",
        is_quick=is_quick,
        kafka="3.9.1",
        machine=Machine("a processor", 2, 23.4, "6.1", "ext4", "cubic", "3.11.7", "openjdk 17"),
        sizes=Sizes(),
        load_before=(0.5, 0.4, 0.3),
        load_after=(2.5, 2.0, 1.0),
        samples=found,
        failures=failures,
    )

"""What is measured once on each fresh cluster, where it can be changed and broken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from peers.processes import Client
from peers.report.samples import Metric
from peers.sequences.sizes import Sizes
from peers.systems.system import System


@dataclass(frozen=True, slots=True)
class Subject:
    """A fresh cluster, the client that its users' programs would have, and the amounts."""

    system: System
    client: Client
    sizes: Sizes


Measure = Callable[[Subject], AsyncIterator[Mapping[Metric, float]]]
"""Yields figures as it has them, so that a later failure does not take them with it."""

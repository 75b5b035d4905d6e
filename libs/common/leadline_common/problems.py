"""What is wrong with a service, as its readiness shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of the service; with `serving`, the service works in spite of it."""

    reason: str
    serving: bool = False

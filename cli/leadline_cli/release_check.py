"""Which releases the live brokers run, and whether they can work together. Pure: no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leadline_common.versions import (
    FIRST_PROTOCOL,
    IncompatibleRelease,
    SpokenVersions,
    require_compatible,
)


class ReleaseCheck(NamedTuple):
    """Whether the releases fit, which there are, and what to do; no advice if there is one."""

    ok: bool
    found: str
    advice: str


def check_releases(brokers: Sequence[Mapping[str, Any]]) -> ReleaseCheck:
    """Compare the rows of `GET /v1/brokers`, of which there is at least one.

    Several releases are no fault, but should not stay. A controller up to release 0.1.0 does not
    name them.
    """
    by_release: dict[str, list[str]] = {}
    for broker in brokers:
        by_release.setdefault(broker.get("release") or "unknown", []).append(str(broker["id"]))
    found = "; ".join(
        f"{name}: broker {', '.join(ids)}" for name, ids in sorted(by_release.items())
    )
    spoken = [_spoken(broker) for broker in brokers]
    # If any two do not fit, neither do these.
    newer = max(spoken, key=lambda one: one.oldest)
    older = min(spoken, key=lambda one: one.newest)
    try:
        require_compatible(newer, [older])
    except IncompatibleRelease as problem:
        return ReleaseCheck(ok=False, found=found, advice=str(problem))
    advice = "finish the rolling upgrade or its rollback" if len(by_release) > 1 else ""
    return ReleaseCheck(ok=True, found=found, advice=advice)


def _spoken(broker: Mapping[str, Any]) -> SpokenVersions:
    return SpokenVersions(
        f"broker {broker['id']}",
        broker.get("release") or "unknown",
        broker.get("oldest_protocol", FIRST_PROTOCOL),
        broker.get("newest_protocol", FIRST_PROTOCOL),
    )

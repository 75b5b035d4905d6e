"""The replicas of a broker that has very many are shown while they are sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_broker.api.v3 import clusters
from leadline_broker.api.v3.clusters import _replicas_on


def test_a_replica_is_shown_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of 100,000 stopped the event loop for over four seconds."""
    shown: list[tuple[str, int]] = []

    def replica_of(_links: object, topic: str, row: Any, _broker: int) -> tuple[str, int]:
        shown.append((topic, row.number))
        return shown[-1]

    monkeypatch.setattr(clusters, "replica_of", replica_of)
    rows = [SimpleNamespace(number=n, replicas=(1, 2) if n % 2 else (2, 3)) for n in range(6)]
    metadata = SimpleNamespace(
        topic_names=lambda: {"t"},
        partition_numbers=lambda _topic: range(6),
        partition=lambda _topic, number: rows[number],
    )
    view = cast("Any", SimpleNamespace(metadata=metadata, links=None))

    replicas = cast("Any", _replicas_on(view, 1))

    assert shown == []
    assert next(replicas) == ("t", 1)
    assert shown == [("t", 1)]
    assert list(replicas) == [("t", 3), ("t", 5)]

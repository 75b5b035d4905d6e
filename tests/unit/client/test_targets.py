"""The address of the group coordinator, as brokers give it."""

from __future__ import annotations

from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from leadline_client.targets import GroupCoordinator


def named(epoch: int, url: str = "http://c") -> dict[str, object]:
    return {"brokers": [], "coordinator": {"id": 1, "url": url, "epoch": epoch}}


def test_the_errors_for_no_broker_and_no_coordinator_differ() -> None:
    target = GroupCoordinator()
    target.apply_lookup(None)
    assert isinstance(target.unavailable(), AllKnownBrokersNotAvailable)
    target.apply_lookup({"brokers": [], "coordinator": None})
    assert isinstance(target.unavailable(), CoordinatorNotAvailable)


def test_a_former_coordinator_is_not_used_again() -> None:
    target = GroupCoordinator()
    target.apply_lookup(named(2, "http://two"))
    target.apply_lookup(named(1, "http://one"))
    assert target.address() == "http://two"
    assert not target.on_error(NotCoordinator("elsewhere"))
    target.apply_lookup(named(1, "http://one"))
    assert target.address() is None
    target.apply_lookup(named(3, "http://three"))
    assert target.address() == "http://three"

"""The order of a rolling restart, and when a restarted broker is back."""

from __future__ import annotations

from leadline_cli.rolling import Target, not_back, roll_order
from leadline_client.wire import Metadata

TARGETS = [
    Target(kind, number, f"http://127.0.0.1:{number}")
    for kind in ("controller", "broker", "coordinator")
    for number in (2, 1)
]


def _metadata(incarnation: int, isr: list[int]) -> Metadata:
    return Metadata.from_json(
        {
            "cluster_id": "c",
            "version": 1,
            "controller": None,
            "brokers": [{"id": 1, "url": "http://b", "rack": None, "incarnation": incarnation}],
            "topics": {"t": {"topic_id": "id", "partitions": [[0, 2, 1, isr, [1, 2]]]}},
        }
    )


def test_the_active_controller_is_the_last() -> None:
    names = [one.name for one in roll_order(TARGETS, active_controller=1)]
    assert names == [
        "coordinator-1",
        "coordinator-2",
        "broker-1",
        "broker-2",
        "controller-2",
        "controller-1",
    ]


def test_services_can_be_left_out() -> None:
    names = [one.name for one in roll_order(TARGETS, 1, only="broker", skip=["broker-1"])]
    assert names == ["broker-2"]


def test_a_broker_is_back_once_it_has_a_new_incarnation_and_all_its_isrs() -> None:
    assert not_back(_metadata(4, [1, 2]), 1, 4) == "has not registered again"
    assert not_back(_metadata(5, [2]), 1, 4) == "is not in the ISR of t-0"
    assert not_back(_metadata(5, [1, 2]), 1, 4) == ""
    assert not_back(_metadata(5, [1, 2]), 3, -1) == "has not registered again"

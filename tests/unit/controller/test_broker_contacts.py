"""A controller that is out of touch with most brokers lets another one lead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.errors import ConnectionLost, LeadlineError, Unreachable
from leadline_common import rpc
from leadline_common.identity import InternalAddress
from leadline_common.tracing import spans
from leadline_controller.domain.broker_contacts import BrokerContacts, is_cut_off
from leadline_controller.runtime.channel.listener import Command
from tests.unit.controller.broker_queues import Broker, Held, empty_queue, image_of

TIMEOUT_MS = 1_000


def test_a_broker_is_out_of_reach_after_the_timeout_only() -> None:
    contacts = BrokerContacts(TIMEOUT_MS)
    contacts.note(1, 0)
    assert contacts.out_of_reach({1}, TIMEOUT_MS) == []
    assert contacts.out_of_reach({1}, TIMEOUT_MS + 1) == [1]


def test_a_contact_ends_it() -> None:
    contacts = BrokerContacts(TIMEOUT_MS)
    contacts.note(1, 0)
    contacts.note(1, 5_000)
    assert contacts.out_of_reach({1}, 5_000 + TIMEOUT_MS) == []


def test_a_broker_that_is_seen_first_has_its_time() -> None:
    """At the beginning of a term nobody has sent anything yet."""
    contacts = BrokerContacts(TIMEOUT_MS)
    assert contacts.out_of_reach({1, 2}, 70_000) == []
    contacts.note(2, 71_001)
    assert contacts.out_of_reach({1, 2}, 71_001) == [1]


def test_a_broker_that_was_down_has_its_time_again() -> None:
    contacts = BrokerContacts(TIMEOUT_MS)
    contacts.note(1, 0)
    assert contacts.out_of_reach((), 9_000) == []
    assert contacts.out_of_reach({1}, 10_000) == []


def test_some_brokers_out_of_reach_are_their_own_fault() -> None:
    assert [is_cut_off(missing, 3) for missing in range(4)] == [False, False, True, True]
    assert [is_cut_off(missing, 4) for missing in range(5)] == [False, False, False, True, True]
    assert not is_cut_off(0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10_000)), max_size=30),
    st.sets(st.integers(0, 5)),
)
def test_who_was_in_touch_within_the_timeout_is_in_reach(
    noted: list[tuple[int, int]], live: set[int]
) -> None:
    contacts, latest = BrokerContacts(TIMEOUT_MS), dict[int, int]()
    now_ms = 0
    for broker, later_ms in noted:
        now_ms += later_ms
        contacts.note(broker, now_ms)
        latest[broker] = now_ms
    now_ms += TIMEOUT_MS // 2
    found = contacts.out_of_reach(live, now_ms)
    assert found == sorted(
        broker for broker in live & latest.keys() if now_ms - latest[broker] > TIMEOUT_MS
    )


class Failing(Broker):
    """A broker whose requests end with an error, as long as there is one."""

    error: LeadlineError | None = None

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        if self.error is not None:
            raise self.error
        return await super().post(to, path, body, timeout_ms)


@pytest.mark.parametrize(
    ("error", "connects"),
    [(Unreachable("no connection"), False), (ConnectionLost("no answer in time"), True)],
)
async def test_a_broker_that_answers_late_is_in_touch_and_one_without_connection_is_not(
    error: LeadlineError, connects: bool
) -> None:
    """A busy broker that sends heartbeats is no fault of the controller."""
    receiver = Failing()
    calls = empty_queue(image_of([1]), receiver, Held()).calls
    body = b'{"controller_epoch": 7}'

    receiver.error = error
    assert await calls.post(Command.ROLES, rpc.STOP_REPLICA_PATH, body, spans.NO_SPAN) is None
    assert calls.cannot_connect is not connects
    assert calls.is_unreachable

    receiver.error = None
    assert await calls.post(Command.STOP, rpc.STOP_REPLICA_PATH, body, spans.NO_SPAN) is not None
    assert not calls.cannot_connect

"""Rule R10: the lease counts from the send time of the last answered heartbeat."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline_common.zk.session import SessionLease

TIMES = st.integers(min_value=0, max_value=10**9)


def test_no_lease_before_the_first_answer() -> None:
    assert not SessionLease(6000).valid(0)


def test_it_lasts_two_thirds_of_the_session_from_the_send_time() -> None:
    lease = SessionLease(6000)
    lease.renew(sent_ms=1000)
    assert lease.valid(4999)
    assert not lease.valid(5000)


def test_an_answer_that_sat_in_the_socket_through_a_pause_gives_nothing() -> None:
    lease = SessionLease(6000)
    lease.renew(sent_ms=1000)
    assert not lease.valid(60_000), "read after a long pause, the answer says nothing of now"


@given(st.lists(TIMES, min_size=1))
def test_answers_in_any_order_leave_what_the_latest_sent_gives(sent: list[int]) -> None:
    lease = SessionLease(6000)
    for moment in sent:
        lease.renew(moment)
    assert lease.valid_until_ms == max(sent) + 4000


def test_revoked_is_for_good() -> None:
    lease = SessionLease(6000)
    lease.renew(1000)
    lease.revoke()
    lease.renew(2000)
    assert not lease.valid(2001)

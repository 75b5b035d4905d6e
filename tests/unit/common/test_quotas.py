"""Quotas: the buckets, who has which quota, and what the gate does with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.errors import InvalidRequest, QuotaExceeded
from leadline_common.access.caller import Caller, caller_scope
from leadline_common.access.principals import Principal
from leadline_common.access.rights import UNLIMITED
from leadline_common.access.users import User, Users, decode_user, encode_user
from leadline_common.http.internal import PEER_KEY
from leadline_common.http.quotas import current_payer, payer_of
from leadline_common.identity import ServiceIdentity
from leadline_common.metrics import Metrics
from leadline_common.quotas.bucket import BURST_S, TokenBucket
from leadline_common.quotas.gate import MOST_SHOWN, QuotaGate
from leadline_common.quotas.ledger import Payer, QuotaLedger
from leadline_common.quotas.limits import Limits, Quota
from leadline_common.settings import ServiceSettings
from leadline_common.settings.broker import BrokerSettings
from leadline_common.settings.controller import ControllerSettings

RATES = st.integers(1, 10**9)
STEPS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 10**7)), max_size=60)
"""Requests: how many ms after the one before, and what each uses."""
ALICE, BOB = Payer("alice"), Payer("bob")


# -- buckets ---------------------------------------------------------------------


@given(RATES, STEPS)
def test_no_window_admits_more_than_the_rate_a_burst_and_one_request(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now, admitted = TokenBucket(rate, 0), 0, []
    for pause, amount in steps:
        now += pause
        if not bucket.wait_ms(now):
            bucket.take(amount, now)
            admitted.append((now, amount))
    for first, (begin, _) in enumerate(admitted):
        total = 0
        for end, amount in admitted[first:]:
            before, total = total, total + amount
            assert before <= rate * (end - begin) / 1_000 + rate * BURST_S
    assert bucket.used == sum(amount for _, amount in admitted)


@given(RATES, STEPS, st.integers(0, 1_000))
def test_who_waits_as_long_as_asked_is_admitted_and_not_before(
    rate: int, steps: list[tuple[int, int]], start: int
) -> None:
    bucket, now = TokenBucket(rate, start), start
    for pause, amount in steps:
        now += pause
        wait_ms = bucket.wait_ms(now)
        assert wait_ms >= 0
        if wait_ms:
            assert bucket.wait_ms(now + wait_ms - 1) == 1
            now += wait_ms
        assert bucket.wait_ms(now) == 0
        bucket.take(amount, now)


@given(RATES, STEPS)
def test_waiting_shortens_the_wait_and_using_lengthens_it(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now = TokenBucket(rate, 0), 0
    for pause, amount in steps:
        before = bucket.wait_ms(now)
        now += pause
        waited = bucket.wait_ms(now)
        assert waited == max(0, before - pause)
        bucket.take(amount, now)
        assert bucket.wait_ms(now) >= waited


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 1_000)
    bucket.take(10 * BURST_S + 10, 1_000)
    assert [bucket.wait_ms(now) for now in (500, 1_000, 0)] == [1_001] * 3


def test_a_debt_is_repaid_at_a_new_rate_and_no_burst_outlives_a_lower_one() -> None:
    bucket = TokenBucket(10, 0)
    bucket.take(10 * BURST_S + 100, 0)
    bucket.set_rate(1_000, 5_000)  # 50 of the debt are repaid
    assert bucket.wait_ms(5_000) == 51
    rich = TokenBucket(1_000, 0)
    rich.set_rate(1, 0)
    rich.take(BURST_S, 0)
    assert rich.wait_ms(0) > 0


# -- the ledger ------------------------------------------------------------------


def test_a_ledger_keeps_a_bounded_number_of_payers_those_seen_last() -> None:
    ledger = QuotaLedger(most=3)
    for number in range(3):
        ledger.bucket(Quota.FETCH, Payer(address=str(number)), 1, 0).take(100, 0)
    assert ledger.bucket(Quota.FETCH, Payer(address="0"), 1, 0).used == 100
    ledger.bucket(Quota.FETCH, Payer(address="3"), 1, 0)
    assert len(ledger) == 3
    assert [str(payer) for _, payer, _ in ledger.used()] == [
        "address 3",
        "address 0",
        "address 2",
    ]


def test_a_user_named_like_an_address_has_a_bucket_of_its_own() -> None:
    ledger = QuotaLedger()
    ledger.bucket(Quota.FETCH, Payer("10.0.0.1"), 1, 0).take(100, 0)
    assert ledger.bucket(Quota.FETCH, Payer(address="10.0.0.1"), 1, 0).used == 0
    assert ledger.bucket(Quota.PRODUCE, Payer("10.0.0.1"), 1, 0).used == 0


def test_a_bucket_is_of_one_user_and_of_no_other_of_the_name() -> None:
    ledger = QuotaLedger(most=2)
    ledger.bucket(Quota.FETCH, BOB, 1, 0).take(5, 0)
    ledger.bucket(Quota.FETCH, ALICE, 1, 0, since=7).take(100, 0)
    assert ledger.bucket(Quota.FETCH, ALICE, 1, 0, since=7).used == 100
    assert ledger.bucket(Quota.FETCH, ALICE, 1, 0, since=8).used == 0
    assert ledger.bucket(Quota.FETCH, BOB, 1, 0).used == 5, "nobody else is forgotten"


# -- users -----------------------------------------------------------------------


def test_quotas_are_part_of_a_user_and_a_node_without_them_has_the_defaults() -> None:
    limits = Limits(fetch_bytes_per_s=5, requests_per_s=0)
    user = User(created_ms=7).limited(limits)
    assert decode_user(encode_user(user)) == user
    former = {"grants": [], "tokens": [], "created_ms": 7, "version": 1}
    assert decode_user(msgspec.json.encode(former)).quotas == Limits()
    users = Users.of({"alice": user})
    assert users.limits_of("alice") == limits
    assert users.limits_of("nobody") == Limits()


@pytest.mark.parametrize("value", [-1, 10**15 + 1])
def test_a_quota_out_of_range_is_refused_and_not_taken_from_a_node(value: int) -> None:
    with pytest.raises(InvalidRequest, match="requests_per_s: must be between 0"):
        User().limited(Limits(requests_per_s=value))
    with pytest.raises(msgspec.MsgspecError):
        decode_user(encode_user(User(quotas=Limits(requests_per_s=value))))


# -- the gate --------------------------------------------------------------------


@dataclass
class World:
    """A gate with a clock, users and settings that a test sets."""

    now: int = 1_000
    users: dict[str, Limits] = field(default_factory=dict)
    settings: object = None
    created_ms: int = 5

    def __post_init__(self) -> None:
        self.metrics = Metrics(process=False)
        self.gate = QuotaGate(
            self.metrics,
            users=lambda: Users.of(
                {
                    name: User(quotas=one, created_ms=self.created_ms)
                    for name, one in self.users.items()
                }
            ),
            settings=lambda: self.settings,
            monotonic_ms=lambda: self.now,
        )


def test_a_refusal_says_which_quota_how_long_and_who_changes_it() -> None:
    world = World(users={"alice": Limits(produce_bytes_per_s=100)})
    world.gate.admit(Quota.PRODUCE, ALICE, 1_150)  # larger than a burst: it passes as a whole
    with pytest.raises(QuotaExceeded) as refusal:
        world.gate.admit(Quota.PRODUCE, ALICE, 1)
    body = refusal.value.body()
    assert (body["quota"], body["limit"]) == ("produce_bytes_per_s", 100)
    assert (body["retry_after_s"], body["outcome"], body["retriable"]) == (1.501, "refused", True)
    for text in ("user:alice", "produce_bytes_per_s", "100", "1501 ms", "users quotas alice"):
        assert text in body["message"]
    world.now += 1_501
    world.gate.admit(Quota.PRODUCE, ALICE, 1)


@pytest.mark.parametrize("own", [True, False])
def test_a_user_inherits_no_debt_of_a_deleted_one_of_its_name(own: bool) -> None:
    world = World(
        users={"alice": Limits(produce_bytes_per_s=100 if own else None)},
        settings=SimpleNamespace(quota_produce_bytes_per_s=100),
    )
    world.gate.admit(Quota.PRODUCE, ALICE, 1_000_000)
    with pytest.raises(QuotaExceeded):
        world.gate.admit(Quota.PRODUCE, ALICE, 1)
    world.created_ms += 1
    world.gate.admit(Quota.PRODUCE, ALICE, 600)
    world.gate.charge(Quota.PRODUCE, ALICE, 500)
    with pytest.raises(QuotaExceeded, match="ask again in 1001 ms"):
        world.gate.admit(Quota.PRODUCE, ALICE, 1)


def test_a_refused_request_uses_nothing_and_others_are_not_touched() -> None:
    world = World(settings=SimpleNamespace(quota_fetch_bytes_per_s=10))
    world.gate.charge(Quota.FETCH, ALICE, 110)
    for _ in range(5):
        with pytest.raises(QuotaExceeded, match="ask again in 1001 ms"):
            world.gate.admit(Quota.FETCH, ALICE, 1_000)
    world.gate.admit(Quota.FETCH, BOB)
    world.gate.admit(Quota.PRODUCE, ALICE)
    text = world.metrics.render().decode()
    assert 'leadline_quota_refused_requests_total{quota="fetch_bytes_per_s"} 5.0' in text
    assert 'leadline_quota_refused_requests_total{quota="requests_per_s"} 0.0' in text
    assert 'leadline_quota_used_total{quota="fetch_bytes_per_s",user="alice"} 110.0' in text


def test_metrics_show_a_bounded_number_of_users_those_seen_last() -> None:
    world = World(settings=SimpleNamespace(quota_requests_per_s=1))
    for number in range(MOST_SHOWN + 5):
        world.gate.admit(Quota.REQUESTS, Payer(f"u{number}"), 1)
    text = world.metrics.render().decode()
    assert text.count("leadline_quota_used_total{") == MOST_SHOWN
    assert 'user="u4"' not in text
    assert 'user="u5"' in text


def test_a_users_own_quota_counts_instead_of_the_default() -> None:
    world = World(
        users={"alice": Limits(requests_per_s=0), "bob": Limits(requests_per_s=2)},
        settings=SimpleNamespace(quota_requests_per_s=1),
    )
    admitted = {}
    for payer in (ALICE, BOB, Payer("carol")):
        admitted[payer.user] = 0
        while admitted[payer.user] < 100:
            try:
                world.gate.admit(Quota.REQUESTS, payer, 1)
            except QuotaExceeded:
                break
            admitted[payer.user] += 1
    assert admitted == {"alice": 100, "bob": 2 * BURST_S, "carol": BURST_S}


def test_a_changed_quota_counts_at_once_and_a_removed_one_limits_nothing() -> None:
    world = World(users={"alice": Limits(requests_per_s=1)})
    world.gate.admit(Quota.REQUESTS, ALICE, 1_000)
    with pytest.raises(QuotaExceeded):
        world.gate.admit(Quota.REQUESTS, ALICE, 1)
    world.users["alice"] = Limits()
    world.gate.admit(Quota.REQUESTS, ALICE, 1)
    world.settings = SimpleNamespace(quota_requests_per_s=1)
    with pytest.raises(QuotaExceeded):
        world.gate.admit(Quota.REQUESTS, ALICE, 1)
    world.users["alice"] = Limits(requests_per_s=10**6)
    with pytest.raises(QuotaExceeded, match="ask again in 1 ms"):
        world.gate.admit(Quota.REQUESTS, ALICE, 1)
    world.now += 1
    world.gate.admit(Quota.REQUESTS, ALICE, 1)


def test_services_pay_nothing_and_addresses_for_bytes_only() -> None:
    world = World(
        settings=SimpleNamespace(**{f"quota_{quota}": 1 for quota in Quota}),
    )
    address = Payer(address="10.0.0.1")
    for quota in Quota:
        world.gate.admit(quota, None, 10**9)
        world.gate.admit(quota, None, 1)
        world.gate.charge(quota, address, 1_000)
    for quota in (Quota.PRODUCE, Quota.FETCH):
        with pytest.raises(QuotaExceeded, match=r"address 10\.0\.0\.1"):
            world.gate.admit(quota, address)
    for quota in (Quota.REQUESTS, Quota.PARTITION_CHANGES):
        world.gate.admit(quota, address)
    assert "leadline_quota_used_total{" not in world.metrics.render().decode()


def test_users_and_addresses_pay_for_what_comes_in_and_services_for_nothing() -> None:
    outside = {"client": ("10.0.0.1", 5)}
    inside = {**outside, PEER_KEY: ServiceIdentity("broker", 1)}
    assert payer_of(outside) == Payer(address="10.0.0.1")
    assert payer_of({}) is None
    assert payer_of(inside) is None
    with caller_scope(Caller(Principal("user", "alice"), UNLIMITED)):
        assert payer_of(outside) == ALICE
        assert payer_of(inside) is None, "a forwarded request was paid for where it came in"
        assert current_payer() == ALICE, "but its partitions are the user's"


def test_every_quota_has_a_default_among_the_settings_which_is_none() -> None:
    found = {
        name: field.default
        for model in (ServiceSettings, BrokerSettings, ControllerSettings)
        for name, field in model.model_fields.items()
        if name.startswith("quota_")
    }
    assert found == {f"quota_{quota}": 0 for quota in Quota}
    assert set(Limits.__struct_fields__) == set(Quota)

"""Plans lose no replica, move few, balance the load and respect racks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from leadline_client.errors import PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_controller.domain.placement import assign_replicas
from leadline_controller.domain.planning.plans import (
    Plan,
    plan_balance,
    plan_drain,
    plan_expand,
)
from leadline_controller.domain.planning.racks import RackRule
from leadline_controller.domain.planning.replacements import choose_replacements, replace_failed

Assignments = dict[TopicPartition, tuple[int, ...]]
SEEDS = range(150)


def placed(brokers: dict[int, str | None], partitions: int, factor: int) -> Assignments:
    """Place a thousand partitions per topic as the controller places new ones."""
    return {
        TopicPartition(f"topic-{number // 1000}", number % 1000): replicas
        for number, replicas in assign_replicas(brokers, partitions, factor).items()
    }


def scattered(random: Random, brokers: int, factor: int, least: int = 1) -> Assignments:
    """Place partitions at random: uneven, and regardless of racks."""
    return {
        TopicPartition("orders", number): tuple(random.sample(range(brokers), factor))
        for number in range(random.randint(least, 40))
    }


def after(plan: Plan, before: Assignments) -> Assignments:
    """Return the assignments after a plan; check that it loses and duplicates no replica."""
    now = before | plan.targets
    for name, replicas in now.items():
        assert len(set(replicas)) == len(replicas) == len(before[name])
    return now


def moved(before: Assignments, now: Assignments) -> int:
    return sum(len({*now[name]} - {*before[name]}) for name in before)


def test_balance_is_even_with_the_fewest_moves() -> None:
    for seed in SEEDS:
        random = Random(seed)
        count = random.randint(2, 9)
        before = scattered(random, count, random.randint(1, min(3, count)))
        plan = plan_balance(before, dict.fromkeys(range(count)))
        now = after(plan, before)
        loads = Counter(broker for replicas in now.values() for broker in replicas)
        counts = [loads[broker] for broker in range(count)]
        assert max(counts) - min(counts) <= 1, seed
        assert plan.spread("replicas_after") == max(counts) - min(counts)
        assert moved(before, now) == plan.moves == plan.minimum, seed


def test_drain_and_expand_of_an_even_cluster_leave_it_even() -> None:
    for seed in SEEDS:
        random = Random(seed)
        count = random.randint(4, 9)
        brokers: dict[int, str | None] = dict.fromkeys(range(count))
        before = scattered(random, count, random.randint(1, 3), least=20)
        before |= plan_balance(before, brokers).targets
        drained = random.randrange(count)
        plan = plan_drain(before, brokers, [drained])
        now = after(plan, before)
        assert not any(drained in replicas for replicas in now.values())
        on_it = sum(drained in replicas for replicas in before.values())
        assert moved(before, now) == plan.moves == plan.minimum == on_it
        assert plan.spread("replicas_after") <= 1, seed
        assert plan.spread("leaders_after") <= 1, seed

        again = plan_expand(now, brokers, [drained])
        grown = after(again, now)
        assert again.moves == again.minimum
        assert again.spread("replicas_after") <= 1, seed
        assert again.spread("leaders_after") <= 1, seed
        for name, replicas in grown.items():
            assert {*replicas} - {*now[name]} <= {drained}, "no other broker gets a replica"


def test_balance_corrects_crowded_racks() -> None:
    for seed in SEEDS:
        random = Random(seed)
        racks = random.randint(2, 4)
        brokers: dict[int, str | None] = {b: f"rack-{b % racks}" for b in range(racks * 3)}
        before = scattered(random, len(brokers), random.randint(1, 4))
        plan = plan_balance(before, brokers)
        most = -(-len(next(iter(before.values()))) // racks)
        for replicas in after(plan, before).values():
            assert max(Counter(b % racks for b in replicas).values()) <= most, seed
        assert plan.spread("replicas_after") <= 1, seed


def test_unequal_racks_share_what_each_must_take() -> None:
    """With three replicas on three racks, a rack of one broker holds one of each partition."""
    brokers: dict[int, str | None] = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    random = Random(7)
    before = {
        TopicPartition("orders", number): tuple(random.sample(range(6), 3)) for number in range(60)
    }
    plan = plan_balance(before, brokers)
    loads = Counter(broker for replicas in after(plan, before).values() for broker in replicas)
    assert [loads[broker] for broker in range(6)] == [20, 20, 20, 30, 30, 60]


def test_an_even_cluster_stays_as_it_is() -> None:
    brokers: dict[int, str | None] = dict.fromkeys(range(5))
    assert plan_balance(placed(brokers, 1000, 3), brokers).targets == {}


def test_drain_moves_nothing_else_even_in_an_uneven_cluster() -> None:
    before: Assignments = {TopicPartition("orders", n): (0, 1) for n in range(10)}
    before[TopicPartition("orders", 10)] = (3, 0)
    plan = plan_drain(before, dict.fromkeys(range(4)), [3])
    assert (plan.moves, plan.minimum) == (1, 1)
    assert plan.targets[TopicPartition("orders", 10)][0] == 2


def test_excluded_brokers_get_nothing_and_keep_what_they_have() -> None:
    before: Assignments = {TopicPartition("orders", n): (n % 2, 3) for n in range(8)}
    now = after(plan_balance(before, dict.fromkeys(range(4)), excluded=[3]), before)
    assert all(3 in replicas for replicas in now.values())
    loads = Counter(broker for replicas in now.values() for broker in replicas if broker != 3)
    assert max(loads.values()) - min(loads.values()) <= 1


def test_a_drain_that_leaves_too_few_brokers_is_refused() -> None:
    before = {TopicPartition("orders", 0): (0, 1, 2)}
    with pytest.raises(PolicyViolation, match="cannot be moved"):
        plan_drain(before, dict.fromkeys(range(3)), [2])


def test_expansion_by_a_broker_that_is_not_live_is_refused() -> None:
    with pytest.raises(PolicyViolation, match=r"\[7\] are not live"):
        plan_expand({TopicPartition("orders", 0): (0, 1)}, dict.fromkeys(range(3)), [7])


@pytest.mark.parametrize("racks", [None, 5], ids=["no racks", "five racks"])
def test_a_hundred_thousand_partitions(racks: int | None) -> None:
    """Goal h: 10 to 9 and 10 to 12 brokers; spread at most 1, moves at most 1.01 of the least."""

    def rack(broker: int) -> str | None:
        return None if racks is None else f"rack-{broker % racks}"

    ten = {broker: rack(broker) for broker in range(10)}
    before = placed(ten, 100_000, 3)
    twelve = ten | {10: rack(10), 11: rack(11)}
    for plan in (plan_drain(before, ten, [9]), plan_expand(before, twelve, [10, 11])):
        now = after(plan, before)
        assert plan.spread("replicas_after") <= 1
        assert plan.spread("leaders_after") <= 1
        assert plan.moves <= 1.01 * plan.minimum
        rule = RackRule(twelve, plan.receivers)
        assert not any(rule.crowded(replicas) for replicas in now.values())


def test_replacements_respect_racks_and_load() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    rule = RackRule(racks, [0, 1, 2, 3, 5])
    assert choose_replacements((4, 0, 2), [4], rule, {5: 99}) == (5, 0, 2)
    two_racks = RackRule(racks, [0, 1, 2, 3])
    assert choose_replacements((4, 0, 2), [4], two_racks, {1: 5, 3: 4}) == (3, 0, 2)


def test_replacements_are_spread_over_all_survivors() -> None:
    brokers: dict[int, str | None] = dict.fromkeys(range(6))
    before = placed(brokers, 600, 3)
    load = Counter(broker for replicas in before.values() for broker in replicas)
    lost = {name: replicas for name, replicas in before.items() if 0 in replicas}
    survivors = {broker: rack for broker, rack in brokers.items() if broker != 0}
    targets = replace_failed(lost, [0], survivors, load)
    assert targets.keys() == lost.keys()
    now = Counter(b for replicas in (before | targets).values() for b in replicas)
    assert now[0] == 0
    assert max(now[b] for b in survivors) - min(now[b] for b in survivors) <= 2

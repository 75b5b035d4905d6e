"""One partition under reassignment, whose brokers fail, return, lag, catch up and drain at random.

The controller has no memory here: each action follows from the nodes as they are,
which is what a new controller would see after any single write. Every action is
held to the invariants I1 to I11 of a reassignment:

I1 ends exactly at the target; I2 adds no more than the limit per step, or what
producers lack; I3 never costs in-sync replicas below min.insync.replicas, or any
where there are fewer; I4 never has fewer replicas than before or wanted; I5 uses
brokers of the start and the target only; I6 keeps targets that were added, and
adds no replica again that was dropped; I7 brings the new preferred leader in the
first step, and lets it lead when that step ends, unless it is drained; I8 takes no
idle step, and drops nobody while it waits; I9 drops when what was added is in sync;
I10 adds nobody who is down; I11 elects only in steps that count as leader movements,
as the queue holds back every other election.
"""

from __future__ import annotations

from random import Random

import msgspec

from leadline_client.wire import NO_LEADER
from leadline_common.reassignments import ReassignmentAlgorithm, WaitReason
from leadline_controller.domain.election import ElectionKind, elect
from leadline_controller.domain.reassignment.machine import (
    Action,
    Elect,
    Expand,
    Finish,
    ReassignmentState,
    Shrink,
    Wait,
    apply_action,
    moves_leader,
    next_action,
)
from leadline_controller.domain.reassignment.steps import insync_floor

INCREMENTAL, LEGACY = ReassignmentAlgorithm.INCREMENTAL, ReassignmentAlgorithm.LEGACY
LIMITS = (1, 1, 2, 2, 3, 5, None)


class World:
    """A partition, its brokers, and the observed course of its reassignment."""

    def __init__(self, seed: int, algorithm: ReassignmentAlgorithm) -> None:
        self.random = Random(seed)
        self.brokers = range(self.random.randint(2, 10))
        start, target = self._replicas(), self._replicas()
        self.state = ReassignmentState(
            replicas=start,
            leader=start[0],
            isr=start,
            target=target,
            start=start,
            live=frozenset(self.brokers),
            algorithm=algorithm,
            min_insync_replicas=self.random.randint(1, 4),
            replica_movements=self.random.choice(LIMITS),
        )
        self.finished = False
        self.allowed = {*start, *target}
        self.least = min(len(start), len(target))
        self.steps_since_target = 0
        self.owed: set[int] = set()
        self.held: set[int] = set()
        self.dropped: set[int] = set()

    # -- what happens to brokers, and what operators do -------------------------

    def happen(self) -> None:
        """Apply one random event."""
        weights = {
            self.act: 8,
            self.catch_up: 8,
            self.lag: 1,
            self.die: 1,
            self.come_back: 2,
            self.bounce: 1,
            self.fail_over: 3,
            self.lose_controller: 1,
            self.retune: 1,
            self.drain: 1,
        }
        if self.random.random() < 0.03:
            self.random.choice((self.retarget, self.cancel))()
        else:
            self.random.choices(list(weights), list(weights.values()))[0]()

    def catch_up(self) -> None:
        """Let a live follower catch up with a live leader; it is then no longer stale."""
        state = self.state
        if state.leader not in state.in_sync:
            return
        behind = [b for b in state.replicas if b in state.live and b not in state.in_sync]
        if behind:
            joiner = self.random.choice(behind)
            isr = tuple(b for b in state.replicas if b in state.isr or b == joiner)
            self._change(isr=isr, stale=state.stale - {joiner})

    def lag(self) -> None:
        state = self.state
        followers = [b for b in state.isr if b != state.leader]
        if followers and state.leader in state.in_sync:
            slow = self.random.choice(followers)
            self._change(isr=tuple(b for b in state.isr if b != slow))

    def die(self) -> None:
        victim = self.random.choice(self.brokers)
        self._change(live=self.state.live - {victim}, stale=self.state.stale - {victim})

    def come_back(self) -> None:
        dead = [b for b in self.brokers if b not in self.state.live]
        if dead:
            returned = self.random.choice(dead)
            self._change(live=self.state.live | {returned}, stale=self.state.stale | {returned})

    def bounce(self) -> None:
        """Restart a broker before its session expires."""
        broker = self.random.choice(sorted(self.state.live) or [0])
        if broker in self.state.live:
            self._change(stale=self.state.stale | {broker})

    def fail_over(self) -> None:
        """Apply the failover decision for failures and restarts."""
        state = self.state
        present = state.live - state.stale
        kind = ElectionKind.REPLICA_OFFLINE if state.leader in present else ElectionKind.OFFLINE
        chosen = elect(kind, state.replicas, state.isr, present, leader=state.leader)
        if chosen.leader == NO_LEADER:
            chosen = elect(ElectionKind.OFFLINE, state.replicas, state.isr, state.live)
        self._change(leader=chosen.leader, isr=chosen.isr, stale=frozenset())

    def lose_controller(self) -> None:
        """Let a controller decide and fail before it writes."""
        if not self.finished:
            next_action(self.state)

    def retune(self) -> None:
        self._change(replica_movements=self.random.choice(LIMITS))

    def drain(self) -> None:
        """Begin or end the drain of one broker."""
        self._change(draining=self.state.draining ^ {self.random.choice(self.brokers)})

    def retarget(self) -> None:
        if not self.finished:
            self._aim(target=self._replicas(), cancelled=False)

    def cancel(self) -> None:
        if not self.finished:
            self._aim(cancelled=True)

    def heal(self, *, everybody: bool) -> None:
        """Let brokers return, and all live replicas catch up."""
        if everybody:
            self._change(live=frozenset(self.brokers))
        self.fail_over()
        if self.state.leader == NO_LEADER:
            return
        present = tuple(b for b in self.state.replicas if b in self.state.live)
        self._change(isr=present, stale=frozenset())

    # -- the reassignment --------------------------------------------------------

    def act(self) -> Action | None:
        """Apply the next action of the state machine, and check the invariants."""
        if self.finished:
            return None
        before = self.state
        action = next_action(before)
        self.state = apply_action(before, action)
        self._check(before, action)
        if isinstance(action, Finish) or (isinstance(action, Shrink) and action.finished):
            self.finished = True
            assert self.state.replicas == before.goal, "I1"
        return action

    def settle(self, *, everybody: bool) -> Wait | None:
        """Apply actions, and catch up in between, until the machine is done or waits forever."""
        for _ in range(20 + 8 * len({*self.state.replicas, *self.state.goal})):
            self.heal(everybody=everybody)
            action = self.act()
            if self.finished:
                return None
            if isinstance(action, Wait):
                return action
        raise AssertionError(f"no end in sight: {self.state}")

    def _check(self, before: ReassignmentState, action: Action) -> None:
        match action:
            case Expand():
                self._check_expand(before, action)
            case Shrink():
                self._check_shrink(before, action)
            case Elect():
                assert action.leader in before.in_sync, "an unclean leader"
                assert moves_leader(before), "I11"
            case Wait():
                self._check_wait(before, action)
            case Finish():
                assert before.replicas == before.goal, "I1"
        after = self.state
        assert {*after.replicas} <= self.allowed, "I5"
        assert {*after.isr} <= {*after.replicas}
        assert len(after.replicas) >= self.least, "I4"
        assert len(set(after.replicas)) == len(after.replicas)

    def _check_expand(self, before: ReassignmentState, action: Expand) -> None:
        added, in_sync = {*action.adding}, before.in_sync
        assert {*action.replicas} == {*before.replicas} | added
        assert not added & {*before.replicas}
        assert added <= {*before.goal}
        assert not {*action.removing} & {*before.goal}, "I6"
        assert added or action.removing or action.replicas == before.goal, "I8"
        assert not added & self.dropped, "I6"
        if before.algorithm is INCREMENTAL:
            limit = len(added) if before.replica_movements is None else before.replica_movements
            deficit = insync_floor(before.min_insync_replicas, before.goal) - len(in_sync)
            available = (before.live & {*before.goal}) - {*before.replicas}
            assert len(added) <= max(limit, deficit), "I2"
            assert len(added) >= min(deficit, len(available)), (
                "producers wait longer than necessary"
            )
            assert added <= before.live, "I10"
            future = before.goal[0]
            if self.steps_since_target == 0 and future in before.live:
                assert future in action.replicas, "I7"
        self.owed |= added
        self.steps_since_target += 1

    def _check_shrink(self, before: ReassignmentState, action: Shrink) -> None:
        cancelled = {*before.adding} - {*before.goal}
        drops = {*action.drops}
        assert not drops & {*before.goal}, "I6"
        if drops - cancelled:
            assert not self.owed & {*before.replicas}, "I9"
            assert not cancelled, "only additions outside the target stop before the step ends"
        floor = insync_floor(before.min_insync_replicas, before.goal)
        was, now = len(before.in_sync), len(self.state.in_sync)
        assert now >= min(was, floor), "I3"
        assert action.leader == before.leader
        assert not (action.finished and action.adding), "unfinished"
        assert action.leader in self.state.in_sync, "a leader outside the ISR"
        future = before.goal[0]
        may_lead = future in before.in_sync and future not in before.draining
        if before.algorithm is INCREMENTAL and may_lead:
            assert action.leader == future, "I7"
        self.dropped |= drops - cancelled
        self.held |= {*action.assignment} & {*before.goal}
        assert self.held <= {*action.assignment}, "I6"

    def _check_wait(self, before: ReassignmentState, action: Wait) -> None:
        assert action.waiting_for or action.reason is WaitReason.PARTITION_OFFLINE, "I8"
        absent = [b for b in action.waiting_for if b not in before.live]
        assert bool(absent) or action.reason is not WaitReason.TARGET_OFFLINE
        assert not {*action.waiting_for} & {*before.in_sync}

    # -- within --------------------------------------------------------------------

    def _aim(self, **intent: object) -> None:
        self._change(**intent)
        self.allowed.update(self.state.goal)
        settled = len(self.state.replicas) - len(self.state.adding)
        self.least = min(settled, len(self.state.goal))
        self.steps_since_target = 0
        self.held, self.dropped = set(), set()

    def _change(self, **members: object) -> None:
        self.state = msgspec.structs.replace(self.state, **members)
        self.owed.difference_update(self.state.in_sync)

    def _replicas(self) -> tuple[int, ...]:
        most = min(5, len(self.brokers))
        return tuple(self.random.sample(self.brokers, self.random.randint(1, most)))


def run_world(seed: int, algorithm: ReassignmentAlgorithm) -> World:
    """Run one world to its end.

    First faults; then whoever is live catches up, and the machine may only wait
    for someone who is down; then everybody returns, and it must end at its goal.
    """
    world = World(seed, algorithm)
    for _ in range(world.random.randint(0, 60)):
        world.happen()
    wait = world.settle(everybody=False)
    if wait is not None:
        assert wait.reason is not WaitReason.CATCHING_UP, f"waits for nothing: {world.state}"
    assert world.settle(everybody=True) is None, f"never ends: {world.state}"
    if algorithm is INCREMENTAL:
        world.heal(everybody=True)
        assert world.state.replicas == world.state.goal, "I1"
    return world

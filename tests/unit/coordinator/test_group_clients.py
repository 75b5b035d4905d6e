"""Rule R16 with the client's own state machine: its consumers in the world of `world.py`.

There consumers keep to the contract by the book; here `leadline_client.membership` decides,
for an application that takes its time to give partitions up. The stories, what must never
be, and what must be in the end are those of `test_group_safety.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

from leadline_client import membership
from leadline_client.channel import Started, Stopped, decode
from leadline_client.membership import (
    AssignPartitions,
    CloseChannel,
    ConsumerSubscription,
    Effect,
    FailConsumer,
    LosePartitions,
    MembershipManager,
    RevokePartitions,
    SendFrame,
)
from tests.unit.coordinator.test_group_safety import play, quiet, stories
from tests.unit.coordinator.world import Connection, Consumer, World

Partition = tuple[str, int]
GIVING_UP_MS = (0, 0, 30, 120, 400)


class Client(Consumer):
    """A consumer that decides as the client does. `started` is what its application reads."""

    def __init__(self, world: World, name: str, hello: dict[str, Any]) -> None:
        super().__init__(world, name, hello)
        self._membership = MembershipManager(ConsumerSubscription(**hello))
        self._given_up_at: dict[Partition, int] = {}

    @property
    def _now_s(self) -> float:
        return self.world.now / 1000

    def consuming(self) -> set[Partition]:
        """What it reads just now."""
        runs = self.alive and self.world.now >= self.frozen_until
        return set(self.started) if runs and self._membership.may_consume(self._now_s) else set()

    def act(self) -> None:
        """Do what there is to be done."""
        now = self.world.now
        if not self.alive or now < self.frozen_until:
            return
        self._give_up([one for one, due in self._given_up_at.items() if due <= now])
        if self.connection is not None:
            self._listen(self.connection)
        elif now >= self.reconnect_at:
            self._connect()

    def lose(self) -> None:
        """Be without a channel, and come back later; what it reads waits for that."""
        reads = self.started
        super().lose()
        self.started = reads
        self._membership.on_closed()

    def _connect(self) -> None:
        if self.world.coordinator is None:
            self.reconnect_at = self.world.now + 30
            return
        self.connection = self.world.connect(self)
        self.world.put(self.connection, "up", self._membership.hello(self._now_s))

    def _listen(self, link: Connection) -> None:
        now = self.world.now
        self._apply(self._membership.on_time(self._now_s))
        while link.down and link.down[0][0] <= now and self.connection is link:
            frame = decode(link.down.popleft()[1])
            self._apply(self._membership.on_frame(frame, self._now_s))
        ended = link.client_closed_at is not None and now >= link.client_closed_at
        if self.connection is link and ended:
            self.lose()

    def _give_up(self, partitions: Collection[Partition]) -> None:
        if partitions:
            self._forget(partitions)
            self._apply(self._membership.on_revoked(partitions, self._now_s))

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame(frame):
                    deaf = {Started: not self.answers_starts, Stopped: not self.answers_stops}
                    if self.connection is not None and not deaf.get(type(frame), False):
                        self.world.put(self.connection, "up", frame)
                case RevokePartitions(partitions):
                    due = self.world.now + self.world.random.choice(GIVING_UP_MS)
                    self._given_up_at = dict.fromkeys(partitions, due) | self._given_up_at
                case LosePartitions(partitions):
                    self._forget(partitions)
                case AssignPartitions(added, _):
                    self.started |= {one for one, _ in added}
                    for kept in self._membership.owned & self._given_up_at.keys():
                        del self._given_up_at[kept]
                case CloseChannel():
                    self.lose()
                case FailConsumer():
                    self.lose()
                    self.alive = False
        self._show()

    def _forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.started.discard(partition)
            self._given_up_at.pop(partition, None)

    def _show(self) -> None:
        one = self._membership
        self.member, self.secret, self.owned = one.member, one.secret, set(one.owned)
        if one.coordinator_epoch is not None and one.generation is not None:
            self.seen = (one.coordinator_epoch, one.generation, 0)


class ClientWorld(World):
    """A world of such consumers."""

    def join(self, **hello: Any) -> Consumer:
        """Have another one come."""
        consumer = Client(self, f"c{len(self.consumers)}", hello)
        self.consumers.append(consumer)
        return consumer


@pytest.fixture(autouse=True)
def _small_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_WELCOME_WITHIN_S", 0.4)


@settings(max_examples=60, **quiet)
@stories
def test_clients_never_share_a_partition_and_in_the_end_each_has_one(
    seed: int, assignor: str, protocol: str, story: list[tuple[str, int, int]]
) -> None:
    play(seed, assignor, protocol, story, ClientWorld)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@settings(max_examples=5_000, **quiet)
@stories
def test_nor_in_five_thousand_stories(
    seed: int, assignor: str, protocol: str, story: list[tuple[str, int, int]]
) -> None:
    play(seed, assignor, protocol, story, ClientWorld)

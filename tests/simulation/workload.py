"""Producers: unique values with acks=all, sent again only after a definite refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline_client.wire import NO_LEADER
from tests.simulation.broker_shell import BrokerProcess
from tests.simulation.messages import PARTITION, TOPIC, ProduceReply
from tests.simulation.network import Answer
from tests.simulation.world import Process
from tests.support.checks.history import History

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

CLIENT_TIMEOUT_MS = 200.0
MAX_TRIES = 8


class Producer(Process):
    """Sends one value after the other to the broker that it regards as the leader."""

    def __init__(self, cluster: Cluster, number: int, history: History, pause_ms: float) -> None:
        super().__init__(cluster.world, f"producer {number}")
        self.cluster = cluster
        self.number = number
        self.history = history
        self.pause_ms = pause_ms
        self.done = 0
        self._leader = 1
        self._value = number * 1_000_000
        self._waits_for = 0
        self._tries = 0
        self.after(self.world.between(0, 20), self._next)

    @property
    def value(self) -> int:
        """The value that is being sent."""
        return self._value

    def _next(self) -> None:
        self._value += 1
        self._tries = 0
        self.history.send(self._value, TOPIC, PARTITION, self.number)
        self._send()

    def _send(self) -> None:
        self._tries += 1
        self._waits_for += 1
        attempt = self._waits_for
        self.cluster.network.call(
            self,
            self.cluster.brokers[self._leader],
            _produce,
            self._value,
            lambda reply: self._answered(attempt, reply),
            once=True,
        )
        self.after(CLIENT_TIMEOUT_MS, self._time_out, attempt)

    def _answered(self, attempt: int, reply: ProduceReply) -> None:
        if attempt != self._waits_for:
            return
        if reply.refused and self._tries < MAX_TRIES:
            self._guess(reply.leader)
            self._waits_for += 1
            self.after(self.world.between(3, 20), self._send)
            return
        if reply.refused:
            self.history.refuse(self._value)
            self._guess(reply.leader)
        elif reply.offset >= 0:
            self.history.ack(self._value, reply.offset)
            self.done = self._value
        else:
            self._unknown()
        self._finish()

    def _time_out(self, attempt: int) -> None:
        if attempt == self._waits_for:
            self._unknown()
            self._guess(NO_LEADER)
            self._finish()

    def _unknown(self) -> None:
        self.world.reached("produce of unknown outcome")
        self.history.give_up(self._value)

    def _finish(self) -> None:
        self._waits_for += 1
        self.after(self.world.between(0, self.pause_ms), self._next)

    def _guess(self, hint: int) -> None:
        """Try the hinted leader, or anyone when the refusal knows none."""
        brokers = self.cluster.everyone
        known = hint in brokers and hint != self._leader
        self._leader = hint if known else self.world.random.choice(brokers)


def _produce(process: BrokerProcess, value: int, answer: Answer[ProduceReply]) -> None:
    process.on_produce(value, answer)

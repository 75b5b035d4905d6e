"""Partitions that lose their ISR, and operators who elect another replica then."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from leadline_client.errors import LeadlineError
from leadline_client.wire import TopicPartition
from leadline_common.rpc import JSON
from leadline_common.znodes import PartitionState
from tests.runtime_simulation.cluster import GROUP_TOPIC, Cluster
from tests.runtime_simulation.messages import ELECT_PATH, Elect
from tests.runtime_simulation.plan import Fault
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.service_faults import ServiceFaults
from tests.runtime_simulation.services import BrokerService

ALONE: Final = "an ISR of one member lost it"
ELECTED_AGAIN: Final = "an operator elected again after a leader that could not open its log"
_LOOK_S: Final = 0.05
_SHRINKS_WITHIN_S: Final = 5.0
_ELECTED_WITHIN_S: Final = 4.0
_TIMEOUT_S: Final = 3.0


class UncleanFaults:
    """Takes an ISR away, and lets operators elect uncleanly, until all is healed."""

    def __init__(self, cluster: Cluster, services: ServiceFaults) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._services = services

    def begin(self, fault: Fault) -> None:
        """Take all followers of a partition away, then its leader, and let the first return.

        It is the first partition of a topic of producers, which operators do not remove.
        """
        ever = self._cluster.topics.partitions()
        partitions = [one for one in ever if one.topic != GROUP_TOPIC and one.partition == 0]
        if not partitions:
            return
        partition = partitions[fault.target % len(partitions)]
        work = self._elect(partition, fault)
        self._world.loop.in_process(Process("administrator"), work)

    async def _elect(self, partition: TopicPartition, fault: Fault) -> None:
        state = self._cluster.topics.state(partition)
        if state is None or state.leader < 0:
            return
        followers = {*self._cluster.topics.replicas(partition)} - {state.leader}
        for number in followers:
            self._take(self._cluster.brokers[number], fault.choice & 3)
        leader = await self._alone(partition)
        await asyncio.sleep(self._world.between(0.1, 1.0))
        if leader is not None and not self._services.healed:
            self._world.reached(ALONE)
            broker = self._cluster.brokers[leader]
            self._take(broker, fault.choice >> 2 & 3)
            self._services.later(fault.for_s, self._give_back, broker)
        if not self._services.healed:
            for number in followers:
                self._give_back(self._cluster.brokers[number])
        await self._operate(partition)

    def _take(self, broker: BrokerService, choice: int) -> None:
        """Kill a broker, cut its power or freeze it."""
        if choice == 0:
            broker.freeze()
            return
        broker.kill()
        if choice == 1:
            broker.disk.cut_power()

    @staticmethod
    def _give_back(broker: BrokerService) -> None:
        broker.resume()
        broker.start()

    async def _alone(self, partition: TopicPartition) -> int | None:
        """Wait until the ISR has one member, the leader; return it."""
        until_s = self._world.loop.now_s + _SHRINKS_WITHIN_S
        while self._world.loop.now_s < until_s and not self._services.healed:
            state = self._cluster.topics.state(partition)
            if state is not None and state.isr == (state.leader,):
                return state.leader
            await asyncio.sleep(_LOOK_S)
        return None

    async def _operate(self, partition: TopicPartition) -> None:
        """Elect uncleanly as soon as there is no leader, and no member of the ISR is live."""
        until_s = self._world.loop.now_s + _ELECTED_WITHIN_S
        while self._world.loop.now_s < until_s and not self._services.healed:
            state = self._cluster.topics.state(partition)
            if state is not None and state.leader < 0 and not self._is_live(state):
                await self._ask(partition)
            await asyncio.sleep(_LOOK_S)

    def _is_live(self, state: PartitionState) -> bool:
        return any(self._cluster.brokers[number].acting for number in state.isr)

    async def _ask(self, partition: TopicPartition) -> None:
        assert self._cluster.unclean is not None
        self._cluster.unclean.asked.add(partition)
        await ask(self._cluster, partition)


async def ask(cluster: Cluster, partition: TopicPartition) -> None:
    """Ask each controller once; one of them may carry it out, also later than it answers."""
    body = msgspec.json.encode(Elect(*partition))
    for controller in cluster.controllers:
        try:
            await cluster.network.post(
                controller.name, ELECT_PATH, body, JSON, _TIMEOUT_S, repeatable=False
            )
        except LeadlineError as problem:
            cluster.world.note("%s: %r", ELECT_PATH, problem)


def elect_again(cluster: Cluster) -> None:
    """Do what an operator does for partitions that have no leader after an unclean election.

    The log of the one that was elected could not be opened. What its broker opens later is not the
    log of that election, so that it counts as out of sync.
    """
    assert cluster.unclean is not None
    for partition in sorted(cluster.unclean.asked):
        state = cluster.topics.state(partition)
        if state is not None and state.leader < 0:
            cluster.world.reached(ELECTED_AGAIN)
            task = cluster.world.loop.in_process(Process("operator"), ask(cluster, partition))
            cluster.run(1.0, task.done)
            task.result()

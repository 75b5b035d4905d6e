"""Operators of a simulated cluster: they send requests to controllers until one does as asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import msgspec

from leadline_client.errors import LeadlineError
from leadline_client.wire import TopicPartition
from leadline_common.rpc import JSON
from tests.runtime_simulation.configuring import config_change
from tests.runtime_simulation.messages import (
    ADD_PARTITIONS_PATH,
    CANCEL_PATH,
    CONFIGURE_PATH,
    CREATE_TOPIC_PATH,
    DELETE_TOPIC_PATH,
    REASSIGN_PATH,
    REMOVE_PARTITIONS_PATH,
    Cancel,
    Create,
    Delete,
    Done,
    FewerPartitions,
    MorePartitions,
    Reassign,
)
from tests.runtime_simulation.network import Network
from tests.runtime_simulation.plan import (
    ADD,
    CANCEL,
    DELETE,
    MIN_INSYNC,
    REASSIGN,
    RECREATE,
    REMOVE,
    REPLACE,
    RETAIN,
    Action,
)
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.services import BrokerService
from tests.runtime_simulation.topics import Topics
from tests.runtime_simulation.world import World

MOST_PARTITIONS = 4
TIMEOUT_S = 3.0
WAIT_MS = 1_000
CANCEL_WITHIN_S = 2.0
CONFIGURE_WITHIN_S = 3.0
AWAY = "a broker was away while its partition was removed"


@dataclass(eq=False)
class GroupTopic:
    """The topic that a group reads; its producers and members come and go."""

    name: str
    partitions: int
    quiet: Callable[[], Awaitable[None]]
    begin: Callable[[], None]
    leave: Callable[[], None]
    join: Callable[[], None]
    changing: bool = field(default=False, init=False)


@dataclass(eq=False)
class Administration:
    """Carries out the actions of a plan.

    `names` are the topics that there have to be, with these `configs`.
    """

    world: World
    network: Network
    topics: Topics
    names: list[str]
    partitions: int
    replication_factor: int
    brokers: Mapping[int, BrokerService]
    controllers: list[str]
    configs: dict[str, str]
    group_topic: GroupTopic | None
    _open: int = field(default=0, init=False)

    def begin(self, actions: tuple[Action, ...]) -> None:
        """Carry out actions when they are due."""
        for action in actions:
            self.world.loop.after(action.at_s, self._start, action)

    @property
    def is_done(self) -> bool:
        """Whether all actions that were begun have ended."""
        return not self._open

    def keep_topics(self) -> None:
        """Create topics again that are missing, from now on: requests to delete may be late.

        A reassignment that needs a broker which has died for good waits for it. So it is cancelled,
        or gets other replicas if the way back needs that broker as well.
        """
        self.world.loop.in_process(Process("administrator"), self._keep_topics())

    async def _keep_topics(self) -> None:
        while True:
            names = dict.fromkeys(self.names, self.partitions)
            if self.group_topic is not None:
                names[self.group_topic.name] = self.group_topic.partitions
            for name, partitions in names.items():
                if self.topics.assignment(name) is None:
                    await self._create(name, partitions)
            for partition, intent in self.topics.intents().items():
                missing = [number for number, broker in self.brokers.items() if broker.gone]
                if intent.cancelled and not {*intent.start}.isdisjoint(missing):
                    live = tuple(number for number in self.brokers if number not in missing)
                    await self._try(REASSIGN_PATH, Reassign(*partition, live[:3], retarget=True))
                elif not {*intent.target}.isdisjoint(missing):
                    await self._try(CANCEL_PATH, Cancel(*partition))
            await asyncio.sleep(0.2)

    def _start(self, action: Action) -> None:
        self.world.note("ACTION %s", action)
        self._open += 1
        task = self.world.loop.in_process(Process("administrator"), self._act(action))
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open -= 1
        task.result()

    async def _act(self, action: Action) -> None:
        name = self.names[action.topic % len(self.names)]
        if action.kind == DELETE:
            await self._recreate(name, 1 + action.choice % 3)
        elif action.kind == ADD:
            await self._add(name)
        elif action.kind == REMOVE:
            await self._remove(name, action.choice)
        elif action.kind in (MIN_INSYNC, RETAIN):
            await self._configure(action)
        elif action.kind == RECREATE:
            await self._recreate_group_topic(idle=action.choice % 4 > 0)
        elif action.kind == REPLACE:
            await self._replace_group_partition(action.choice)
        else:
            begun = await self._reassign(name, action)
            if action.kind == CANCEL and begun:
                await self._cancel()

    # -- what operators do -----------------------------------------------------

    async def _configure(self, action: Action) -> None:
        """Change the configs of a topic or of the cluster, if a controller takes that in time."""
        group = () if self.group_topic is None else (self.group_topic.name,)
        wanted = config_change(action, [*self.names, *group])
        until_s = self.world.loop.now_s + CONFIGURE_WITHIN_S
        while self.world.loop.now_s < until_s:
            if await self._try(CONFIGURE_PATH, wanted):
                self.world.reached(action.kind)
                return

    async def _recreate(self, name: str, partitions: int) -> None:
        """Delete a topic, and create it again as soon as that is possible."""
        before = self.topics.id_of(name)
        while self.topics.id_of(name) in {before, None}:
            if self.topics.id_of(name) is None:
                await self._create(name, partitions)
            else:
                await self._try(DELETE_TOPIC_PATH, Delete(name, WAIT_MS))
        self.world.reached(DELETE)

    async def _recreate_group_topic(self, *, idle: bool) -> None:
        """Delete the topic that a group reads, and create it again, with other producers.

        The members of an `idle` group have left before, and others join some time later.
        """
        topic = self.group_topic
        if topic is None or topic.changing:
            return
        topic.changing = True
        if idle:
            topic.leave()
        await topic.quiet()
        await self._recreate(topic.name, topic.partitions)
        self.world.reached(RECREATE)
        topic.begin()
        if idle:
            await asyncio.sleep(self.world.between(1.0, 4.0))
            topic.join()
        topic.changing = False

    async def _create(self, name: str, partitions: int) -> None:
        """Try to create a topic; it may exist, or still be about to be deleted."""
        new = Create(name, partitions, self.replication_factor, self.configs)
        await self._try(CREATE_TOPIC_PATH, new)

    async def _add(self, name: str) -> None:
        topic = self.topics.assignment(name)
        if topic is None or len(topic.partitions) >= MOST_PARTITIONS:
            return
        wanted = len(topic.partitions) + 1
        if await self._try(ADD_PARTITIONS_PATH, MorePartitions(name, wanted)):
            self.world.reached(ADD)

    async def _replace_group_partition(self, choice: int) -> None:
        """Remove the last partition of the topic that a group reads, and add it again.

        Everything else goes on meanwhile.
        """
        topic = self.group_topic
        if topic is None or topic.changing:
            return
        topic.changing = True
        if await self._remove_last(topic.name):
            await asyncio.sleep((0.0, 0.0, 0.7, 2.0)[choice % 4])
            while len(self._numbers(topic.name)) < topic.partitions:
                await self._add(topic.name)
            self.world.reached(REPLACE)
        topic.changing = False

    def _numbers(self, name: str) -> list[int]:
        """Return the numbers of a topic's partitions."""
        topic = self.topics.assignment(name)
        return [] if topic is None else sorted(topic.partitions)

    async def _remove(self, name: str, choice: int) -> None:
        """Remove the last partition of a topic, and by choice add it again, at once or later."""
        if await self._remove_last(name) and choice % 4:
            await asyncio.sleep((0.0, 0.7, 2.0)[choice % 3])
            await self._add(name)

    async def _remove_last(self, name: str) -> bool:
        """Remove the last partition of a topic; return whether that was done."""
        topic = self.topics.assignment(name)
        if topic is None or len(topic.partitions) < 2:
            return False
        last = max(topic.partitions)
        wanted = FewerPartitions(name, (last,))
        while (now := self.topics.assignment(name)) is not None and last in now.partitions:
            if now.topic_id != topic.topic_id or last + 1 in now.partitions:
                return False
            await self._try(REMOVE_PARTITIONS_PATH, wanted)
            await asyncio.sleep(0.05)
        self.world.reached(REMOVE)
        self._note_absent(topic.partitions[last])
        return True

    def _note_absent(self, brokers: tuple[int, ...]) -> None:
        """Count that a broker was away while its replica was removed."""
        if not all(self.brokers[number].acting for number in brokers):
            self.world.reached(AWAY)

    async def _reassign(self, name: str, action: Action) -> bool:
        """Give a partition other replicas; return whether a controller has accepted that."""
        topic = self.topics.assignment(name)
        if topic is None:
            return False
        number = action.partition % len(topic.partitions)
        random = Random(action.choice)
        # Fewer than two replicas might lose their only disk.
        replicas = tuple(random.sample(list(self.brokers), random.randint(2, 3)))
        wanted = Reassign(name, number, replicas, random.random() < 0.5)
        accepted = await self._try(REASSIGN_PATH, wanted)
        if accepted:
            self.world.reached(REASSIGN)
        return accepted

    async def _cancel(self) -> None:
        """Cancel a reassignment that goes on, as soon as there is one."""
        until_s = self.world.loop.now_s + CANCEL_WITHIN_S
        while self.world.loop.now_s < until_s:
            for partition in self.moving():
                if await self._try(CANCEL_PATH, Cancel(*partition)):
                    self.world.reached(CANCEL)
                    return
            await asyncio.sleep(0.01)

    def moving(self) -> list[TopicPartition]:
        """Return the partitions that are being reassigned."""
        found = []
        for partition in self.topics.partitions():
            topic = self.topics.assignment(partition.topic)
            if topic is not None and partition.partition in {*topic.adding, *topic.removing}:
                found.append(partition)
        return found

    # -- requests --------------------------------------------------------------

    async def _try(self, path: str, request: msgspec.Struct) -> bool:
        """Ask each controller once; return whether one has carried it out."""
        body = msgspec.json.encode(request)
        for controller in self.controllers:
            try:
                answer = await self.network.post(
                    controller, path, body, JSON, TIMEOUT_S, repeatable=False
                )
            except LeadlineError as problem:
                self.world.note("%s: %r", path, problem)
            else:
                return msgspec.json.decode(answer, type=Done).complete
        await asyncio.sleep(self.world.between(0.02, 0.1))
        return False

"""Operators of a consumer group: they evict members, set its offsets back, and delete it.

A group without members may be deleted, or begin again at lower offsets. So its members leave
before, and others join afterwards. What such a request changes is seen in ZooKeeper, while it may
take effect, and by the offset that it names.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgspec

from leadline_common import consumer_znodes
from leadline_common.consumer_znodes import OffsetNode, group_path, offset_path
from leadline_common.rpc import JSON
from tests.runtime_simulation.cluster import GROUP_TOPIC, Cluster
from tests.runtime_simulation.member_processes import GROUP
from tests.runtime_simulation.members import Members, SetBack
from tests.runtime_simulation.plan import EVICT, RESET, Fault
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.topics import name_of
from tests.runtime_simulation.web import NoAnswer, NotReached, WebRequest
from tests.runtime_simulation.zookeeper_tree import Change

_TRY_S: Final = 5.0
_TIMEOUT_S: Final = 2.0
_GROUP_PATH: Final = f"/v1/groups/{GROUP}"
_HEADERS: Final = (("content-type", JSON),)
_DELETION: Final = -1
EVICTED: Final = "a member was evicted"
SET_BACK: Final = "an operator's reset moved an offset back"
REFUSED: Final = "an operator of a group was refused"


@dataclass(eq=False)
class GroupOperators:
    """Sends requests about one group to coordinators, and notes what they change."""

    cluster: Cluster
    members: Members
    _wanted: dict[int, set[int]] = field(default_factory=dict, init=False)
    """The offsets that requests have named, by partition; `_DELETION` for all of them."""
    _may_be_deleted: bool = field(default=False, init=False)
    busy: bool = field(default=False, init=False)
    """Whether the group is to have no members."""

    def __post_init__(self) -> None:
        self.cluster.zookeeper.on_commit.append(self._look)

    def begin(self, fault: Fault) -> None:
        """Do what an action of a plan says, unless something else goes on."""
        if fault.kind != EVICT and self.busy:
            return
        work = self._evict(fault) if fault.kind == EVICT else self._set_back(fault)
        self.cluster.world.loop.in_process(Process("administrator"), work)

    # -- what operators do -----------------------------------------------------

    async def _evict(self, fault: Fault) -> None:
        """Evict any member that the group has."""
        ids = await self._ids()
        if ids:
            await self._evict_one(ids[fault.target % len(ids)])

    async def _ids(self) -> list[str]:
        """Return the ids of the group's members, as far as a coordinator knows them."""
        answer = await self._ask("GET", _GROUP_PATH)
        return [] if answer is None else [one["id"] for one in answer["members"]]

    async def _evict_one(self, member: str) -> None:
        if await self._ask("DELETE", f"{_GROUP_PATH}/members/{member}"):
            self.cluster.world.reached(EVICTED)

    async def _set_back(self, fault: Fault) -> None:
        """Let all members leave, set the group's offsets back or delete it, and let others join.

        Members that do not leave, as those that are frozen, are evicted by chance.
        """
        self.busy = True
        world, random = self.cluster.world, Random(fault.choice)
        until_s, done = world.loop.now_s + _TRY_S, False
        while not done and world.loop.now_s < until_s:
            self.members.leave_all()  # Somebody may have joined.
            await asyncio.sleep(world.between(0.05, 0.3))
            done = await self._try(fault, random)
            if not done and random.random() < 0.5:
                for member in await self._ids():
                    await self._evict_one(member)
        if done:
            world.reached(f"{fault.kind}: done")
        self.members.join_all()
        self.busy = False

    async def _try(self, fault: Fault, random: Random) -> bool:
        """Send one request; return whether it was carried out."""
        if fault.kind == RESET:
            body = self._reset(random)
            path = f"{_GROUP_PATH}/offsets/reset"
            return bool(body) and await self._ask("POST", path, body) is not None
        self._may_be_deleted = True
        self._note_wanted(dict.fromkeys(self._committed(), _DELETION))
        return await self._ask("DELETE", _GROUP_PATH) is not None

    def _reset(self, random: Random) -> bytes:
        """Return the request for offsets of some partitions below those that are committed."""
        lower = {
            number: random.choice((0, node.offset // 2, node.offset))
            for number, node in self._committed().items()
            if random.random() < 0.8
        }
        if not lower:
            return b""
        self._note_wanted(lower)
        rows = [
            {"topic": GROUP_TOPIC, "partition": number, "offset": offset}
            for number, offset in lower.items()
        ]
        return msgspec.json.encode({"to": "offsets", "offsets": rows})

    def _committed(self) -> dict[int, OffsetNode]:
        """Return the committed offsets by partition."""
        found = {}
        for number in range(self.members.group.partitions):
            node = self.cluster.zookeeper.tree.now(offset_path(GROUP, GROUP_TOPIC, number))
            if node is not None:
                found[number] = consumer_znodes.decode(node.data, OffsetNode)
        return found

    def _note_wanted(self, offsets: dict[int, int]) -> None:
        for number, offset in offsets.items():
            self._wanted.setdefault(number, set()).add(offset)

    def _look(self, changes: list[Change]) -> bool:
        """Note what requests of operators have changed; a function of `on_commit`."""
        tree = self.cluster.zookeeper.tree
        if any(change.deleted and change.path == group_path(GROUP) for change in changes):
            self.members.deleted_s.append(self.cluster.world.loop.now_s)
            if not self._may_be_deleted:
                self.cluster.world.problems.append("R16: the group was deleted unasked")
        for number, wanted in self._wanted.items():
            path = offset_path(GROUP, GROUP_TOPIC, number)
            if not any(change.path == path for change in changes):
                continue
            *_, (_, before), (zxid, after) = [(0, None), *tree.history(path)]
            if before is None:
                continue
            was = consumer_znodes.decode(before.data, OffsetNode)
            now = None if after is None else consumer_znodes.decode(after.data, OffsetNode)
            offset = 0 if now is None else now.offset
            if (_DELETION if now is None else offset) in wanted and offset < was.offset:
                place = (name_of(GROUP_TOPIC, was.topic_id), number)
                at_s = self.cluster.world.loop.now_s
                self.members.set_back.append(SetBack(place, offset, path, zxid, at_s))
                self.cluster.world.reached(SET_BACK)
        return False

    async def _ask(self, method: str, path: str, body: bytes = b"") -> dict[str, Any] | None:
        """Ask each coordinator until one has done it; return its answer, None if none has."""
        for host in self.cluster.coordinators:
            request = WebRequest(method, path, _HEADERS, body)
            try:
                answer = await self.cluster.machine.web.exchange(
                    host.name, request, connect_s=_TIMEOUT_S, timeout_s=_TIMEOUT_S
                )
            except (NotReached, NoAnswer) as problem:
                self.cluster.world.note("%s %s: %r", method, path, problem)
                continue
            if answer.status == 200:
                found: dict[str, Any] = msgspec.json.decode(answer.body)
                return found
            self.cluster.world.note("%s %s: %s", method, path, answer.body)
            self.cluster.world.reached(REFUSED)
        return None

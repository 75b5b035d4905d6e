"""Metadata by its changes equals the whole metadata, whatever happens and whoever is asked.

A controller's image and its requests to two brokers, the brokers' metadata, and a client that asks
any of them are the real ones; only the network is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.api.cluster import read_metadata as read_broker
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_client.cache import MetadataCache
from leadline_client.errors import NoController, StaleVersion
from leadline_client.whole_metadata import WholeMetadata
from leadline_client.wire import Metadata
from leadline_common.access.caller import EVERYBODY, Caller, caller_scope
from leadline_common.access.principals import Principal
from leadline_common.access.rights import Access, Grant, Role
from leadline_common.api.metadata import MetadataQuery, state_known_to_caller
from leadline_common.http.caching import Document
from leadline_common.rpc import ControllerRow, UpdateMetadataRequest
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.api.app import read_metadata as read_controller
from leadline_controller.domain.changes import (
    BrokerDown,
    BrokerUp,
    Change,
    ConfigsSet,
    DeletionPending,
    RemovalPending,
    StateSet,
    TopicGone,
    TopicSet,
)
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.channel.requests import RequestBuilder
from tests.unit.controller.images import broker

BROKERS: Final = (1, 2)
CONTROLLER: Final = 0
NAMES: Final = ("a.1", "a.2", "b")
READER_OF_A: Final = Caller(
    Principal.user("alice"), Access((Grant(Role.CONSUMER, ("a.*",), ("g",)),))
)
READER_OF_B: Final = Caller(
    Principal.user("alice"), Access((Grant(Role.CONSUMER, ("b",), ("g",)),))
)
CALLERS: Final = (EVERYBODY, READER_OF_A, READER_OF_B)

Operation = tuple[Any, ...]


class World:
    """ZooKeeper's nodes, the active controller, two brokers and a client."""

    def __init__(self) -> None:
        self.zxid = 0
        self.assignments: dict[str, TopicAssignment] = {}
        self.versions: Counter[str] = Counter()
        self.states: dict[tuple[str, int], tuple[PartitionState, int]] = {}
        self.deleting: set[str] = set()
        self.removing: set[str] = set()
        self.live = set(BROKERS)
        self.epoch = 0
        self.brokers = {number: ClusterMetadataCache() for number in BROKERS}
        self.caller = EVERYBODY
        self.cache = MetadataCache()
        self.whole = WholeMetadata(self.cache)
        self.kinds: Counter[str] = Counter()
        self.elect()

    # -- the cluster -------------------------------------------------------------

    def elect(self) -> None:
        """Let a new controller load everything."""
        self.epoch += 1
        self.zxid += 1
        self.image = ClusterImage(controller_epoch=self.epoch)
        changes: list[Change] = [BrokerUp(broker(number), 1) for number in sorted(self.live)]
        for name, assignment in self.assignments.items():
            changes.append(TopicSet(name, assignment, self.versions[name], self.zxid))
        for (name, number), (state, version) in self.states.items():
            changes.append(StateSet(name, number, state, version, self.zxid))
        changes += [DeletionPending(name, self.zxid) for name in sorted(self.deleting)]
        changes += [self._removal(name) for name in sorted(self.removing)]
        self.image.apply(changes)
        row = ControllerRow(1, "http://127.0.0.1:1", self.epoch)
        self.view = MetadataView(self.image, "c", row)
        self.requests = RequestBuilder(self.image, "c", row, 1_000)
        self.acked: dict[int, int | None] = dict.fromkeys(BROKERS)

    def _removal(self, name: str) -> RemovalPending:
        last = max(self.assignments[name].partitions)
        return RemovalPending(name, frozenset({last}), self.zxid)

    def apply(self, change: Change) -> None:
        self.image.apply([change])

    def create(self, name: str, partitions: int) -> None:
        if name not in self.assignments:
            self._assign(
                name, TopicAssignment(f"id-{self.zxid}", dict.fromkeys(range(partitions), BROKERS))
            )

    def grow(self, name: str) -> None:
        if (known := self.assignments.get(name)) and name not in self.deleting | self.removing:
            rows = {**known.partitions, len(known.partitions): BROKERS}
            self._assign(name, msgspec.structs.replace(known, partitions=rows))

    def swap_replicas(self, name: str) -> None:
        """Change the assignment without the state, and perhaps back again later."""
        if known := self.assignments.get(name):
            rows = {**known.partitions, 0: tuple(reversed(known.partitions[0]))}
            self._assign(name, msgspec.structs.replace(known, partitions=rows))

    def begin_removal(self, name: str) -> None:
        if name in self.assignments and len(self.assignments[name].partitions) > 1:
            self.removing.add(name)
            self.apply(self._removal(name))

    def end_removal(self, name: str) -> None:
        if name in self.removing:
            self.removing.discard(name)
            known = self.assignments[name]
            last = max(known.partitions)
            state = self.states.pop((name, last), None)
            rows = {number: row for number, row in known.partitions.items() if number != last}
            first = {**known.first_epochs, last: state[0].leader_epoch + 1 if state else 0}
            changed = msgspec.structs.replace(known, partitions=rows, first_epochs=first)
            self._assign(name, changed)

    def _assign(self, name: str, assignment: TopicAssignment) -> None:
        self.zxid += 1
        self.assignments[name] = assignment
        self.versions[name] += 1
        self.apply(TopicSet(name, assignment, self.versions[name], self.zxid))

    def write_state(self, name: str, number: int, *, elects: bool) -> None:
        known = self.assignments.get(name)
        if known is None or number not in known.partitions:
            return
        self.zxid += 1
        first = known.first_epochs.get(number, 0)
        state, version = self.states.get((name, number), (PartitionState(1, first, (1,), 1), 0))
        if elects:
            state = msgspec.structs.replace(
                state, leader=3 - state.leader, leader_epoch=state.leader_epoch + 1
            )
        else:
            isr = (1, 2) if len(state.isr) == 1 else (state.leader,)
            state = msgspec.structs.replace(state, isr=isr)
        self.states[name, number] = (state, version + 1)
        self.apply(StateSet(name, number, state, version + 1, self.zxid))

    def configure(self, name: str) -> None:
        self.zxid += 1
        self.apply(ConfigsSet(name, {"retention.ms": str(self.zxid)}, self.zxid, self.zxid))

    def begin_deletion(self, name: str) -> None:
        if name in self.assignments:
            self.deleting.add(name)
            self.apply(DeletionPending(name, self.zxid))

    def end_deletion(self, name: str) -> None:
        if name in self.deleting:
            self.zxid += 1
            self.deleting.discard(name)
            self.removing.discard(name)
            del self.assignments[name]
            self.states = {key: state for key, state in self.states.items() if key[0] != name}
            self.versions.pop(name)
            self.apply(TopicGone(name, self.zxid))

    def fail(self, number: int) -> None:
        self.zxid += 1
        self.live ^= {number}
        up = number in self.live
        self.apply(BrokerUp(broker(number), self.zxid) if up else BrokerDown(number, self.zxid))

    def restart(self, number: int) -> None:
        self.brokers[number], self.acked[number] = ClusterMetadataCache(), None

    def lose_answer(self, number: int) -> None:
        self.acked[number] = None

    def send(self, number: int) -> None:
        """Bring a broker's metadata up to date, as the controller's queue does."""
        while True:
            body, version = self.requests.metadata(broker(number), self.acked[number], "cause")
            try:
                self.brokers[number].apply(msgspec.json.decode(body, type=UpdateMetadataRequest))
            except StaleVersion as error:
                self.acked[number] = None
                self.image.advance_version(error.details["version"])
            else:
                self.acked[number] = version
                return

    # -- the client --------------------------------------------------------------

    def become(self, caller: int) -> None:
        self.caller = CALLERS[caller]

    async def get(
        self, source: int, *, after: str = "", topics: list[str] | None = None
    ) -> Document:
        with caller_scope(self.caller):
            query = MetadataQuery(None, 0, topics, state_known_to_caller(after))
            if source == CONTROLLER:
                return read_controller(self.view, query)
            return await read_broker(self.brokers[source], query)

    async def ask_by_name(self, source: int, name: str) -> None:
        try:
            found = await self.get(source, topics=[name])
        except NoController:
            return
        self.cache.update(Metadata.from_json(json.loads(found.body)), [name])

    async def ask(self, source: int) -> None:
        """Ask for all topics; what is not older than what the client has is then what it has."""
        known, found = self.whole.known, None
        while found is None:
            after = self.whole.params(known).get("changed_after", "")
            try:
                answer = await self.get(source, after=after)
            except NoController:
                return
            body = json.loads(answer.body)
            self.kinds["changes" if "changed_after" in body else "whole"] += 1
            found = self.whole.apply(body, answer.etag(compressed=True), known)
            known = None
        expected = Metadata.from_json(json.loads((await self.get(source)).body))
        if order(expected) >= order(found):
            assert found.topics == expected.topics
            assert found.brokers == expected.brokers


def order(document: Metadata) -> tuple[int, int]:
    assert document.controller is not None
    return document.version, document.controller.epoch


def operations() -> st.SearchStrategy[list[Operation]]:
    """Return sequences in which the client asks often, and metadata is sent often."""
    name, source = st.sampled_from(NAMES), st.sampled_from((CONTROLLER, *BROKERS))
    number = st.sampled_from(BROKERS)
    of_topics = ("grow", "swap_replicas", "begin_removal", "end_removal", "configure")
    write = st.tuples(st.just("write_state"), name, st.integers(0, 1), st.booleans())
    ask, send = st.tuples(st.just("ask"), source), st.tuples(st.just("send"), number)
    delete = st.tuples(st.sampled_from(("begin_deletion", "end_deletion")), name)
    rarely = st.one_of(
        st.tuples(st.sampled_from(("fail", "restart", "lose_answer")), number),
        st.tuples(st.just("elect")),
        st.tuples(st.just("become"), st.integers(0, 2)),
        st.tuples(st.just("ask_by_name"), source, name),
    )
    one = st.one_of(
        ask,
        send,
        ask,
        send,
        write,
        st.tuples(st.sampled_from(of_topics), name),
        st.tuples(st.just("create"), name, st.integers(1, 3)),
        delete,
        rarely,
    )
    return st.lists(one, min_size=15, max_size=60).map(lambda drawn: [*ASKED, *drawn])


async def run(done: list[Operation]) -> World:
    world = World()
    for what, *arguments in done:
        if what == "write_state":
            world.write_state(*arguments[:2], elects=arguments[2])
        elif what in ("ask", "ask_by_name"):
            await getattr(world, what)(*arguments)
        else:
            getattr(world, what)(*arguments)
    return world


START: Final[list[Operation]] = [("create", "a.1", 3), ("create", "b", 1), ("send", 1), ("send", 2)]
ASKED: Final[list[Operation]] = [*START, ("ask", 1)]


@given(operations())
def test_a_client_that_reads_changes_has_what_everybody_else_has(done: list[Operation]) -> None:
    async def check() -> None:
        world = await run(done)
        for number in BROKERS:
            world.send(number)
        for source in (*BROKERS, CONTROLLER, *BROKERS):
            await world.ask(source)
        assert world.kinds["whole"]

    asyncio.run(check())


async def settled(done: list[Operation], source: int) -> Counter[str]:
    """Run operations, then ask a source; return of which kind its answers were."""
    world = await run(done)
    world.kinds.clear()
    await world.ask(source)
    return world.kinds


@pytest.mark.parametrize(
    ("done", "source", "kinds"),
    [
        pytest.param([], 1, ["changes"], id="nothing has changed"),
        pytest.param([], 2, ["changes"], id="another broker that has served this state"),
        pytest.param([], CONTROLLER, ["changes"], id="the controller that published this state"),
        pytest.param(
            [("write_state", "b", 0, True), ("send", 1), ("send", 2)], 2, ["changes"], id="a leader"
        ),
        pytest.param(
            [
                ("swap_replicas", "a.1"),
                ("send", 1),
                ("ask", 1),
                ("swap_replicas", "a.1"),
                ("send", 2),
            ],
            2,
            ["changes"],
            id="a broker that skipped this state, to rows as before",
        ),
        pytest.param(
            [
                ("swap_replicas", "a.1"),
                ("send", 1),
                ("ask", 1),
                ("swap_replicas", "a.1"),
                ("lose_answer", 2),
                ("send", 2),
            ],
            2,
            ["whole"],
            id="a broker that skipped this state by a full request",
        ),
        pytest.param(
            [("restart", 1), ("send", 1)], 1, ["changes"], id="the same state after a restart"
        ),
        pytest.param(
            [("restart", 1), ("configure", "b"), ("send", 1)], 1, ["whole"], id="a broker restarted"
        ),
        pytest.param(
            [("write_state", "b", 0, True), ("elect",), ("send", 1)],
            1,
            ["changes"],
            id="a new controller, at a broker that has served this state",
        ),
        pytest.param(
            [
                ("create", "a.2", 1),
                ("send", 1),
                ("ask", 1),
                ("begin_deletion", "a.2"),
                ("end_deletion", "a.2"),
                ("send", 2),
            ],
            2,
            ["changes"],
            id="the deletion of a topic that the broker has never had",
        ),
        pytest.param(
            [("begin_removal", "a.1"), ("send", 1)], 1, ["changes"], id="a removed partition"
        ),
        pytest.param(
            [("begin_removal", "a.1"), ("ask", CONTROLLER), ("ask_by_name", 1, "a.1"), ("send", 2)],
            2,
            ["changes", "whole"],
            id="a removed partition that another broker still showed",
        ),
        pytest.param([("elect",)], CONTROLLER, ["whole"], id="a new controller itself"),
        pytest.param(
            [("create", "a.2", 1), ("ask", CONTROLLER)], 2, ["changes"], id="a broker lags"
        ),
        pytest.param([("become", 1)], 1, ["whole"], id="other rights"),
        pytest.param([("become", 1), ("ask", 1), ("become", 0)], 1, ["whole"], id="more rights"),
        pytest.param(
            [("become", 1), ("ask", 1), ("begin_deletion", "b"), ("send", 1)],
            1,
            ["changes"],
            id="the deletion of what the caller may not see",
        ),
        pytest.param(
            [
                ("ask_by_name", 1, "b"),
                ("begin_deletion", "b"),
                ("end_deletion", "b"),
                ("create", "b", 1),
                ("send", 1),
            ],
            1,
            ["changes"],
            id="a topic was recreated",
        ),
        pytest.param(
            [("become", 1), ("ask_by_name", 1, "b"), ("become", 0)],
            1,
            ["changes", "whole"],
            id="a topic that the client was told does not exist",
        ),
    ],
)
def test_what_a_client_is_sent(done: list[Operation], source: int, kinds: list[str]) -> None:
    assert asyncio.run(settled([*ASKED, *done], source)) == Counter(kinds)


def test_an_answer_of_a_broker_that_lags_is_no_base() -> None:
    """The client did not take over its rows, because it knew a newer state of another topic."""
    done = [
        *START,
        ("write_state", "a.1", 0, True),
        ("ask_by_name", CONTROLLER, "a.1"),
        ("write_state", "a.1", 0, False),
        ("send", 1),
        ("write_state", "b", 0, True),
        ("ask_by_name", CONTROLLER, "b"),
        ("ask", 1),
        ("send", 1),
    ]
    assert asyncio.run(settled(done, 1)) == Counter(["whole"])


def test_changes_of_a_broker_that_lags_are_no_base() -> None:
    done = [
        *START,
        ("write_state", "b", 0, True),
        ("send", 1),
        ("ask", 1),
        ("write_state", "b", 0, False),
        ("send", 1),
        ("write_state", "a.1", 0, True),
        ("ask_by_name", CONTROLLER, "a.1"),
        ("ask", 1),
        ("send", 1),
    ]
    assert asyncio.run(settled(done, 1)) == Counter(["changes"])


def test_changes_that_come_after_a_whole_answer_with_other_rights_are_not_merged() -> None:
    async def check() -> None:
        world = await run(ASKED)
        known = world.whole.known
        assert known is not None
        late = await world.get(1, after=known.etag)
        world.become(1)
        await world.ask(1)
        assert world.whole.apply(json.loads(late.body), late.etag(), known) is None
        assert world.whole.known is not None
        assert world.whole.known.topics == {"a.1"}

    asyncio.run(check())


def test_named_topics_have_changes_of_their_own() -> None:
    async def check() -> None:
        world = await run(ASKED)
        before = (await world.get(1, topics=["a.1", "a.2"])).etag()
        for what in (world.write_state, world.write_state):
            what("b", 0, elects=True)
        world.create("a.2", 1)
        world.begin_deletion("b")
        world.send(1)
        for source in (1, CONTROLLER):
            answer = json.loads((await world.get(source, after=before, topics=["a.1", "a.2"])).body)
            assert (answer["changed_after"], list(answer["topics"])) == (before.strip('"'), ["a.2"])
            assert (answer["changed_rows"], answer["deleted_topics"]) == ({}, [])

    asyncio.run(check())


def test_only_the_rows_that_have_changed_are_sent() -> None:
    async def check() -> None:
        world = await run([*ASKED, ("write_state", "a.1", 1, True), ("send", 1)])
        known = world.whole.known
        assert known is not None
        answer = json.loads((await world.get(1, after=known.etag)).body)
        assert answer["topics"] == {}
        ((name, topic),) = answer["changed_rows"].items()
        assert (name, topic["partitions"]) == ("a.1", [[1, 2, 1, [1], [1, 2]]])
        world.configure("a.1")
        world.send(1)
        again = json.loads((await world.get(1, after=known.etag)).body)
        assert again["changed_rows"] == answer["changed_rows"]

    asyncio.run(check())

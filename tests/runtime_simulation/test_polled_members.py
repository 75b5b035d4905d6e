"""A simulated member that polls does what the documentation asks of a program, against a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from tests.runtime_simulation.network import Network
from tests.runtime_simulation.plan import Group
from tests.runtime_simulation.polled_members import (
    EXPIRED,
    LATE,
    REJOINED,
    REPEATED,
    SUPERSEDED,
    PolledMember,
)
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.services import Machine
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper import ZooKeeper
from tests.support.groups.log import Hold

ERROR: Final = {"error_code": 0, "message": "", "outcome": "unknown", "retriable": True}
G0: Final = {"topic": "g", "partition": 0}
Script = Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]]]


def answer(number: int, first: int = 0, count: int = 0, **changes: Any) -> dict[str, Any]:
    """Return the answer with the cursor `number`, and with some records of g-0."""
    row = {**G0, "timestamp": 0, "key": None, "value": "v", "headers": []}
    return {
        "records": [{**row, "offset": offset} for offset in range(first, first + count)],
        "assignment": [{**G0, "position": first + count}],
        "revoked": [],
        "generation": 1,
        "coordinator_epoch": 1,
        "lease_ms": 1_000,
        "cursor": str(number),
        **changes,
    }


class Broker:
    """Answers polls by a script, which is told their number and body."""

    def __init__(self, script: Script) -> None:
        self.polls: list[dict[str, Any]] = []
        self.joins = 0
        self.left: list[str] = []
        self._script = script

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = msgspec.json.decode((await receive())["body"])
        status, content = 200, dict[str, Any]()
        if scope["path"].endswith("/poll"):
            self.polls.append(body)
            status, content = self._script(len(self.polls), body)
        elif scope["path"].endswith("/leave"):
            self.left.append(body["secret"])
        else:
            self.joins += 1
            status, content = 201, {"consumer": f"c{self.joins}", "secret": f"s{self.joins}"}
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": msgspec.json.encode(content)})


class Place:
    """A member and its broker in a world of their own."""

    def __init__(self) -> None:
        self.world = World(3)
        self.network = Network(self.world)
        system = SimulatedSystem(self.world.loop, Random(1))
        self.machine = Machine(self.world, system, ZooKeeper(self.world), self.network, 0)

    def run(self, script: Script, seconds: float = 1.0) -> tuple[PolledMember, Broker]:
        # It commits as it polls: a group whose topic may be created again has no other members.
        group, broker = Group(commits_positions=True), Broker(script)
        self.machine.web.serve(Process("broker-1"), broker)
        member = PolledMember(self.machine, "m", "g", ["broker-1"], lambda _: "g a", None, group)
        member.start()
        self.wait(seconds)
        return member, broker

    def wait(self, seconds: float) -> None:
        self.world.loop.run_until(self.world.loop.now_s + seconds)


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.world.loop.close()


def kinds(member: PolledMember) -> list[str]:
    return [event.kind for event in member.log.events]


def test_what_is_processed_is_committed_by_the_next_poll(place: Place) -> None:
    member, broker = place.run(lambda n, _: (200, answer(n, 0, 3) if n == 1 else answer(n, 3)))

    assert [poll["cursor"] for poll in broker.polls[:3]] == [None, "1", "2"]
    assert kinds(member) == ["joined", "assigned", "consumed", "committed"]
    assert member.log.in_incarnations[-1].rows == (("g a", 0, 0, 3),)


def test_a_poll_of_unknown_outcome_is_repeated_with_its_cursor(place: Place) -> None:
    def script(number: int, _: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return (503, ERROR) if number == 2 else (200, answer(number, 0, 3 if number == 1 else 0))

    _, broker = place.run(script)

    assert [poll["cursor"] for poll in broker.polls[:3]] == [None, "1", "1"]
    assert place.world.sometimes[REPEATED] == 1


def test_a_superseded_poll_is_repeated(place: Place) -> None:
    _, broker = place.run(lambda n, _: (409, ERROR) if n == 1 else (200, answer(n)))

    assert [poll["cursor"] for poll in broker.polls[:2]] == [None, None]
    assert place.world.sometimes[SUPERSEDED] == 1


def test_who_is_no_member_any_more_joins_again_without_a_cursor(place: Place) -> None:
    member, broker = place.run(lambda n, _: (404, ERROR) if n == 2 else (200, answer(n)))

    assert [poll["cursor"] for poll in broker.polls[:3]] == [None, "1", None]
    assert [poll["secret"] for poll in broker.polls[:3]] == ["s1", "s1", "s2"]
    assert kinds(member) == ["joined", "assigned", "revoked", "joined", "assigned"]
    assert place.world.sometimes[REJOINED] == 1


def test_a_late_answer_is_discarded_with_its_cursor(place: Place) -> None:
    member, broker = place.run(lambda n, _: (200, answer(n, 0, 3, lease_ms=0 if n == 1 else 900)))

    assert broker.polls[1]["cursor"] is None
    assert place.world.sometimes[LATE] == 1
    assert kinds(member)[:3] == ["joined", "assigned", "consumed"]


def test_a_member_holds_nothing_beyond_its_lease(place: Place) -> None:
    member, _ = place.run(lambda n, _: (200, answer(n)) if n == 1 else (503, ERROR), 0.0)
    place.wait(5.0)

    (hold,) = member.holds()
    assert isinstance(hold, Hold)
    assert hold.until_s <= hold.since_s + 1.0
    assert place.world.sometimes[EXPIRED] == 1


def test_what_was_processed_is_committed_after_the_lease_has_ended(place: Place) -> None:
    def script(number: int, _: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if number == 1:
            return 200, answer(number, 0, 3)
        ended = place.world.sometimes[EXPIRED]
        return (200, answer(number, 3)) if ended else (503, ERROR)

    member, _ = place.run(script, 3.0)

    assert kinds(member)[2:] == ["consumed", "revoked", "assigned", "committed"]
    assert member.log.events[-1].rows == (("g", 0, 0, 3),)


def test_what_others_went_on_with_meanwhile_is_not_committed(place: Place) -> None:
    def script(number: int, _: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if number == 1:
            return 200, answer(number, 0, 3)
        ended = place.world.sometimes[EXPIRED]
        return (200, answer(number, 5)) if ended else (503, ERROR)

    member, _ = place.run(script, 3.0)

    assert kinds(member)[2:] == ["consumed", "revoked", "assigned"]


def test_what_is_revoked_is_given_up_before_the_next_poll(place: Place) -> None:
    told: dict[str, Any] = {"assignment": [], "revoked": [G0]}
    member, broker = place.run(lambda n, _: (200, answer(n, **(told if n > 1 else {}))), 0.5)

    assert kinds(member)[:3] == ["joined", "assigned", "revoked"]
    assert broker.polls[2]["cursor"] == "2"


def test_who_leaves_commits_before(place: Place) -> None:
    member, broker = place.run(lambda n, _: (200, answer(n)))
    member.leave()
    place.wait(1.0)

    assert broker.polls[-1]["max_records"] == 0
    assert broker.left == ["s1"]
    assert kinds(member)[-2:] == ["revoked", "closed"]


def test_an_undocumented_status_is_a_failure(place: Place) -> None:
    place.run(lambda n, _: (418, ERROR) if n == 1 else (200, answer(n)))

    assert "status 418" in place.world.failures[0]

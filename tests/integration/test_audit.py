"""The audit in every controller's database, over a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from structlog.testing import capture_logs

from leadline_common import znodes
from leadline_common.audit_outbox import audit_op
from leadline_common.identity import ServiceIdentity
from leadline_common.tcp_ports import free_port
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry
from leadline_controller.adapters.history.store import SqlHistory
from leadline_controller.adapters.outbox import ZkOutbox
from leadline_controller.domain.history import CLUSTER_RESTORED, AuditQuery
from tests.support.checks.audit_records import broken_chains
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController, active
from tests.support.services.identities import credentials_for
from tests.support.services.up import command_line
from tests.support.services.zookeeper import until

Lone: TypeAlias = tuple[asyncio.subprocess.Process, httpx.AsyncClient]
"""The process of a controller, and a client of it."""
TRIMMING: dict[str, Any] = {"audit_outbox_keep_entries": 1, "reconcile_interval_ms": 100}


async def exported(controller: RunningController, after: int = -1) -> list[dict[str, Any]]:
    answer = await controller.http.get("/v1/audit/export", params={"after": after})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def get(controller: RunningController, path: str, **params: Any) -> Any:
    answer = await controller.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until_trimmed(session: ZkSession, left: int) -> None:
    """Wait until no more than `left` entries are in the outbox."""

    async def trimmed() -> bool:
        return len(await session.get_children(znodes.AUDIT)) <= left

    await wait_until(trimmed, f"no more than {left} entries are in the outbox", 20)


def on_disk(directory: Path, name: str = "first") -> dict[str, Any]:
    """Return where a controller keeps its history: what is in memory only is not trimmed."""
    return {"history_url": f"sqlite:///{directory / name}.db"}


async def up_and_trimmed(rig: Rig, session: ZkSession, directory: Path) -> RunningController:
    """Start a controller, and wait until it alone has most of what has happened."""
    controller = await rig.up(1, **TRIMMING, **on_disk(directory))
    for number in range(5):
        await create(controller, f"topic-{number}")
    await until_trimmed(session, 1)
    return controller


async def start_in_wrong_order(
    rig: Rig, directory: Path, event: str
) -> tuple[RunningController, RunningController]:
    """Start a new controller, then the one that has all entries, once the new one logs `event`."""
    rig.controllers.clear()
    late = RunningController(2, rig.hosts, **TRIMMING)
    rig.controllers.append(late)
    with capture_logs() as lines:
        await late.start()
        await until(
            lambda: any(line["event"] == event for line in lines), "it has looked for others"
        )
    again = RunningController(1, rig.hosts, **TRIMMING, **on_disk(directory))
    rig.controllers.append(again)
    await again.start()
    return late, again


async def live_rows(controller: RunningController) -> dict[str, Any]:
    document = await get(controller, "/v1/metadata")
    return {"version": document["version"], "topics": document["topics"]}


async def test_every_controller_stores_every_entry_in_order(rig: Rig) -> None:
    first = await rig.up(3)
    second = await rig.controller()
    await create(first, partitions=4, replication_factor=3)
    await rig.brokers[1].stop()
    await rig.settled(first)
    entries = await exported(first)
    assert [entry["id"] for entry in entries] == list(range(len(entries)))
    assert (await exported(second))[: len(entries)] == entries, "a standby has the same history"
    kinds = {entry["kind"] for entry in entries}
    assert {"controller_elected", "topic_created", "leaders_initialised", "broker_change"} <= kinds
    stored = await first.replicator.history.find(
        AuditQuery(), cursor=None, newest_first=False, limit=1000
    )
    assert list(broken_chains(stored)) == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/audit",
        "/v1/audit/0",
        "/v1/audit/export",
        "/v1/cluster?at=1",
        "/v1/tasks/history",
        "/v1/topics/orders/partitions/0/history",
    ],
)
async def test_a_read_is_refused_if_the_disk_hangs(rig: Rig, tmp_path: Path, path: str) -> None:
    controller = await rig.up(1, **on_disk(tmp_path))
    await create(controller, "orders")
    history, goes_on = controller.replicator.history, threading.Event()
    assert isinstance(history, SqlHistory)
    await get(controller, "/v1/audit")
    controller.service.read_limits.within_s = 0.1
    for _ in range(2):
        history.readers.submit(goes_on.wait, 60)
    try:
        answer = await controller.http.get(path)
    finally:
        goes_on.set()
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50357)


async def test_entries_are_found_by_what_they_are_about(rig: Rig) -> None:
    controller = await rig.up(3)
    await create(controller, "orders", partitions=3, replication_factor=3)
    await create(controller, "clicks", partitions=3, replication_factor=3)
    await rig.brokers[1].stop()
    await rig.settled(controller)
    about = await get(controller, "/v1/audit", topic="orders", order="oldest")
    assert [entry["kind"] for entry in about["entries"]] == [
        "topic_created",
        "leaders_initialised",
        "broker_change",
    ]
    by_operator = await get(controller, "/v1/audit", actor="operator")
    assert {entry["kind"] for entry in by_operator["entries"]} == {"topic_created"}
    whole = [entry["id"] for entry in await exported(controller)]
    page = await get(controller, "/v1/audit", page_size=2, order="oldest")
    seen = [entry["id"] for entry in page["entries"]]
    while page["next_cursor"]:
        page = await get(
            controller, "/v1/audit", page_size=2, order="oldest", cursor=page["next_cursor"]
        )
        seen += [entry["id"] for entry in page["entries"]]
    assert seen == list(range(len(seen)))
    assert seen[: len(whole)] == whole


async def test_a_partition_tells_why_its_leader_changed(rig: Rig) -> None:
    controller = await rig.up(3)
    await create(controller, replica_assignment={"0": [1, 2, 3]})
    await rig.brokers[1].stop()
    await rig.settled(controller)
    found = await get(controller, "/v1/topics/orders/partitions/0/history")
    first, second = found["changes"]
    assert first["before"] is None
    assert (first["after"]["leader"], first["reason"], first["state_version"]) == (1, "new", 0)
    assert second["before"] == first["after"]
    assert (second["after"]["leader"], second["reason"], second["state_version"]) == (2, "isr", 1)
    assert second["why"] == "failed [1]"
    entry = await get(controller, f"/v1/audit/{second['audit_id']}")
    assert entry["cause"] == second["cause"]
    assert first["time"] <= entry["after"]["noticed_at"] <= entry["time"], "when the news came"


async def test_the_past_is_what_was_recorded_live(rig: Rig) -> None:
    controller = await rig.up(3)
    recorded = []
    await create(controller, "orders", partitions=3, replication_factor=3)
    recorded.append(await live_rows(controller))
    await create(controller, "clicks", partitions=2, replication_factor=2)
    recorded.append(await live_rows(controller))
    await rig.brokers[2].stop()
    await rig.settled(controller)
    recorded.append(await live_rows(controller))
    deleted = await controller.http.delete("/v1/topics/orders")
    assert deleted.status_code == 200, deleted.text
    recorded.append(await live_rows(controller))
    for live in recorded:
        past = await get(controller, "/v1/cluster", version=live["version"])
        assert past["topics"] == live["topics"]
        assert past["version"] <= live["version"]


async def test_a_question_about_times_before_history_is_refused(rig: Rig) -> None:
    controller = await rig.up(1)
    answer = await controller.http.get("/v1/cluster", params={"at": 1})
    assert answer.status_code == 404
    assert answer.json()["error_code"] == 404


async def test_the_outbox_keeps_only_what_somebody_lacks(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    options = {"audit_outbox_keep_entries": 2, "reconcile_interval_ms": 100}
    first = await rig.up(1, **options, **on_disk(tmp_path))
    second = await rig.controller(**options)
    for number in range(5):
        await create(first, f"topic-{number}")
    await until(lambda: second.replicator.stored >= 8, "the standby follows")
    await until_trimmed(zk_session, 2)
    head = len(await exported(first))
    assert await exported(second) == await exported(first)
    assert head > 8


async def test_a_fresh_controller_gets_what_has_left_from_another(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    first = await up_and_trimmed(rig, zk_session, tmp_path)
    late = await rig.controller(**TRIMMING)
    await until(lambda: late.replicator.stored == first.replicator.stored, "the new one catches up")
    assert await exported(late) == await exported(first)


async def test_defect_16_a_history_in_memory_lets_nothing_leave_the_outbox(
    rig: Rig, zk_session: ZkSession
) -> None:
    first = await rig.up(1, **TRIMMING)
    for number in range(5):
        await create(first, f"topic-{number}")
    await until(lambda: first.replicator.published > 5, "it says what it has")
    whole = await exported(first)
    await first.stop()
    rig.controllers.remove(first)
    again = await rig.controller(**TRIMMING)
    await active([again])
    assert (await exported(again))[: len(whole)] == whole


@pytest.fixture
async def lone(zk_chroot: str, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[Lone]]]:
    """Yield what starts a controller by itself, with no setting of where it keeps anything."""
    started: list[Lone] = []

    async def start() -> Lone:
        port = free_port()
        settings = {
            "controller.id": 7,
            "zookeeper.connect": zk_chroot,
            "listen.port": port,
            "zookeeper.session.timeout.ms": 2_000,
            "audit.outbox.keep.entries": 0,
            "reconcile.interval.ms": 100,
            **credentials_for(ServiceIdentity("controller", 7)),
        }
        del settings["zookeeper.credentials.file"]  # the test reads the nodes as nobody
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        command = command_line("controller", *words)
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path)
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60)
        started.append((process, http))

        async def is_active() -> bool:
            try:
                return (await http.get("/readyz")).status_code == 200
            except httpx.HTTPError:
                return False

        await wait_until(is_active, "the controller is active", 60)
        return process, http

    yield start
    for process, http in started:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await http.aclose()


async def test_defect_16_a_controller_started_by_itself_keeps_its_history(
    lone: Callable[[], Awaitable[Lone]], zk_session: ZkSession, tmp_path: Path
) -> None:
    process, http = await lone()
    for percent in range(11, 16):
        change = {"set": {"failed.broker.budget.percent": str(percent)}}
        assert (await http.patch("/v1/configs", json=change)).status_code == 200
    whole = (await http.get("/v1/audit/export")).text.splitlines()
    assert len(whole) > 5
    await until_trimmed(zk_session, 0)
    process.kill()
    await process.wait()
    _, http = await lone()
    assert (await http.get("/v1/audit/export")).text.splitlines()[: len(whole)] == whole
    assert (tmp_path / "data" / "controller-7" / "history.db").exists()


async def test_a_controller_whose_file_is_deleted_gets_what_others_have(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    first = await up_and_trimmed(rig, zk_session, tmp_path)
    late = await rig.controller(**TRIMMING, **on_disk(tmp_path, "late"))
    await until(lambda: late.replicator.stored == first.replicator.stored, "the new one catches up")
    whole = await exported(late)
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"first.db{suffix}").unlink(missing_ok=True)
    await until((tmp_path / "first.db").exists, "the loss is noticed")
    await create(first, "later")
    await until(lambda: late.replicator.stored > whole[-1]["id"], "entries are stored")
    await until(lambda: first.replicator.stored == late.replicator.stored, "also by the first one")
    assert (await exported(first))[: len(whole)] == whole


async def test_a_lone_controller_that_lost_its_history_says_where_it_is_missing(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    first = await up_and_trimmed(rig, zk_session, tmp_path)
    await first.stop()
    rig.controllers.remove(first)
    again = await rig.controller(**TRIMMING)
    await active([again])
    entries = await exported(again)
    assert entries[0]["kind"] == "history_gap"
    assert [e["id"] for e in entries] == list(range(entries[0]["id"], entries[-1]["id"] + 1))


async def test_a_controller_that_does_not_answer_yet_is_asked_again(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    """All of them may be starting at once, and one has lost its disk."""
    first = await up_and_trimmed(rig, zk_session, tmp_path)
    await first.stop()
    late, again = await start_in_wrong_order(rig, tmp_path, "peer history not available")
    await until(lambda: late.replicator.stored > 8, "it asks again")
    entries = await exported(late)
    assert [entry["id"] for entry in entries] == list(range(len(entries)))
    assert "history_gap" not in {entry["kind"] for entry in entries}
    assert await exported(again) == entries


async def test_after_a_restore_the_controller_that_has_the_entries_may_come_second(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    """All start at once in a ZooKeeper that knows none of them."""
    first = await up_and_trimmed(rig, zk_session, tmp_path)
    whole = await exported(first)
    await first.stop()
    await restored(zk_session, first.replicator.stored + 100)
    late, _ = await start_in_wrong_order(rig, tmp_path, "audit entries are missing")
    await until(lambda: late.replicator.stored > first.replicator.stored + 99, "they go on", 30)
    entries = await exported(late)
    assert entries[: len(whole)] == whole
    kinds = [entry["kind"] for entry in entries[len(whole) :]]
    assert kinds[:2] == ["history_gap", "cluster_restored"]


async def test_no_controller_leads_in_an_older_copy_of_zookeeper(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    """R12: topics made since would be gone, and brokers would set their logs aside to delete them.

    An ISR in the copy could have a replica that has missed acknowledged records since.
    """
    first = await rig.up(1, **on_disk(tmp_path))
    await create(first, "since")
    await until(lambda: first.replicator.published > 2, "it says what it has")
    await first.stop()
    rig.controllers.clear()
    await make_older(zk_session)
    again = await rig.controller(**on_disk(tmp_path))
    reasons: list[str] = []

    def says_why() -> bool:
        reasons[:] = [reason for reason, _ in again.service.problems()]
        return again.is_active or any("older copy" in reason for reason in reasons)

    await until(says_why, "it says why it does not lead")
    assert not again.is_active
    assert "its next audit id is 0" in reasons[0]
    assert await zk_session.exists(znodes.CONTROLLER) is None
    assert await ZkOutbox(zk_session).extent() == (0, 0), "nothing is written"
    await zk_session.multi([audit_op(AuditEntry(1, "", "operator", CLUSTER_RESTORED))])
    await until(lambda: again.is_active, "what a restore has written is used")


async def make_older(session: ZkSession) -> None:
    """Take away what the audit has got since the cluster was made."""
    for name in await session.get_children(znodes.AUDIT):
        await session.delete(f"{znodes.AUDIT}/{name}", ANY_VERSION)
    await session.delete(znodes.AUDIT, ANY_VERSION)
    await session.create(znodes.AUDIT)


async def restored(session: ZkSession, first: int) -> None:
    """Do to the audit what a restore does: the entries, and who has read them, are lost."""
    for path in (znodes.AUDIT_READERS, znodes.AUDIT):
        for name in await session.get_children(path):
            await session.delete(f"{path}/{name}", ANY_VERSION)
    await ZkOutbox(session).skip_to(first)
    entry = AuditEntry(1, "", "operator", CLUSTER_RESTORED)
    await session.multi([audit_op(entry)])


async def test_a_fresh_controller_gets_what_others_still_have_and_says_what_they_do_not(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    first = await up_and_trimmed(rig, zk_session, tmp_path)
    whole = await exported(first)
    gone = await first.replicator.history.forget_before(whole[-4]["time"])
    assert gone > 0
    late = await rig.controller(**TRIMMING)
    await until(lambda: late.replicator.stored == first.replicator.stored, "the new one catches up")
    gap, *rest = await exported(late)
    assert (gap["kind"], gap["id"]) == ("history_gap", gone - 1)
    assert rest == await exported(first)
    for version in (whole[-1]["zxid"], None):
        assert (await first.replicator.history.past(time_ms=None, zxid=version)).complete
        assert not (await late.replicator.history.past(time_ms=None, zxid=version)).complete
    assert (await get(late, "/v1/cluster", version=whole[-1]["zxid"]))["complete"]


async def test_entries_that_somebody_removed_hold_up_neither_the_history_nor_the_trimming(
    rig: Rig, zk_session: ZkSession, tmp_path: Path
) -> None:
    options = {"audit_outbox_keep_entries": 2, "reconcile_interval_ms": 100}
    first = await rig.up(1, audit_outbox_keep_entries=50, reconcile_interval_ms=100)
    for number in range(3):
        await create(first, f"topic-{number}")
    await exported(first)
    await until(
        lambda: first.replicator.published == first.replicator.stored, "it says what it has"
    )
    await zk_session.create(f"{znodes.AUDIT}/by-hand", b"which costs the next entry a number")
    for number in (2, 4):
        await zk_session.delete(znodes.audit_path(number), -1)
    late = await rig.controller(**options, **on_disk(tmp_path, "late"))
    await until(lambda: late.replicator.stored == first.replicator.stored, "the new one goes on")
    assert await exported(late) == await exported(first), "the other one had them"
    await first.stop()
    rig.controllers.remove(first)
    await active([late])
    await create(late, "topic-3")
    await zk_session.delete(f"{znodes.AUDIT_READERS}/1", -1)
    await until_trimmed(zk_session, 3)


async def test_what_was_refused_and_what_was_only_tried_are_recorded_too(rig: Rig) -> None:
    controller = await rig.up(1)
    await create(controller, "orders")
    refused = await controller.http.post("/v1/topics", json={"name": "orders"})
    assert refused.status_code == 400
    tried = await controller.http.post("/v1/topics", json={"name": "clicks", "dry_run": True})
    assert tried.status_code == 200
    found = await get(controller, "/v1/audit", kind="create_topic", order="oldest")
    assert [(entry["outcome"], entry["resource"]) for entry in found["entries"]] == [
        ("refused", {"topic": "orders"}),
        ("dry_run", {"topic": "clicks"}),
    ]
    assert "orders" in found["entries"][0]["reason"]


async def test_what_was_refused_is_found_by_what_it_was_about(rig: Rig) -> None:
    controller = await rig.up(1)
    await create(controller, "orders")
    row = {"topic": "orders", "partition": 0, "replicas": [7]}
    requests: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("POST", f"brokers/{2**63}/drain", {}, {"broker": 2**63}),
        ("POST", "topics/orders/partitions", {"partitions": 1}, {"topic": "orders"}),
        ("DELETE", "topics/orders/partitions", {"partitions": [5]}, {"topic": "orders"}),
        ("POST", "reassignments", {"partitions": [row]}, {"topic": "orders", "partition": 0}),
        ("DELETE", "reassignments/orders/0", None, {"topic": "orders", "partition": 0}),
        ("DELETE", "tasks/none", None, {"task": "none"}),
        (
            "POST",
            "elections",
            {"type": "preferred", "partitions": [{"topic": "orders", "partition": 9}]},
            {"topic": "orders", "partition": 9},
        ),
        ("PATCH", "configs", {"set": {"min.insync.replicas": "0"}}, {"config": "cluster"}),
    ]
    for method, path, body, about in requests:
        answer = await controller.http.request(method, f"/v1/{path}", json=body)
        assert 400 <= answer.status_code < 500, answer.text
        newest = (await get(controller, "/v1/audit", page_size=1))["entries"][0]
        assert (newest["outcome"], newest["resource"]) == ("refused", about), path
        assert newest["cause"] == answer.headers["x-leadline-cause"]
    found = await get(controller, "/v1/audit", topic="orders", partition=0, outcome="refused")
    assert len(found["entries"]) == 2

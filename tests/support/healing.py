"""What tests of self-healing wait for and ask, at a controller that runs."""

from __future__ import annotations

from typing import Any

from leadline_common import znodes
from leadline_common.tasks import TaskState
from leadline_common.zk.session import ZkSession
from leadline_controller.runtime.reassignment.healing import HealingManager
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController
from tests.support.services.zookeeper import until

SOON: dict[str, Any] = {"failed_broker_interval_ms": 300, "failed_broker_chunk_partitions": 3}
NEVER: dict[str, Any] = {**SOON, "failed_broker_interval_ms": -1}
LATER: dict[str, Any] = {**SOON, "failed_broker_interval_ms": 60_000}


def replicas(controller: RunningController, topic: str = "orders") -> dict[int, tuple[int, ...]]:
    return {n: p.replicas for n, p in controller.service.image().topics[topic].partitions.items()}


def avoids(controller: RunningController, broker: int) -> bool:
    """Tell whether no replica is assigned to a broker."""
    return controller.is_active and all(
        broker not in assigned for assigned in replicas(controller).values()
    )


def avoids_in(controller: RunningController, topic: str, broker: int) -> bool:
    """Tell whether no replica of a topic is assigned to a broker."""
    return all(broker not in assigned for assigned in replicas(controller, topic).values())


def is_calm(controller: RunningController) -> bool:
    """Tell whether nothing is left to be healed."""
    elected = controller.leadership.active_controller
    if elected is None or not controller.is_active:
        return False
    return not elected.healing.records.failed and not list(elected.healing.chunks())


async def healing_in_chunks(rig: Rig) -> tuple[RunningController, HealingManager]:
    """Return the healing of a dead broker's six replicas in chunks of three, of which one runs."""
    controller = await rig.up(5, **SOON)
    await create(controller, partitions=15, replication_factor=2)
    elected = controller.leadership.active_controller
    assert elected is not None
    healing = elected.healing
    await rig.brokers[1].leave()
    await until(
        lambda: any(task.node.state is TaskState.RUNNING for task in healing.chunks()), "one runs"
    )
    return controller, healing


async def until_a_chunk_runs(controller: RunningController, topic: str) -> None:
    """Wait until the first chunk runs, whose new replica lags; it is of this topic alone."""
    elected = controller.leadership.active_controller
    assert elected is not None
    await until(
        lambda: any(entry.is_running for entry in elected.reassignments),
        "the first chunk runs, and its new replica lags",
    )
    assert {entry.topic_partition.topic for entry in elected.reassignments} == {topic}


async def until_target(controller: RunningController, broker: int) -> None:
    """Wait until a broker is to take something over."""
    elected = controller.leadership.active_controller
    assert elected is not None
    await until(
        lambda: any(
            entry.state is not None and broker in entry.state.adding
            for entry in elected.reassignments
        ),
        f"{broker} is to take something over",
    )


async def until_noted(session: ZkSession, *brokers: int) -> None:
    """Wait until exactly these brokers are noted as failed."""
    wanted = sorted(map(str, brokers))

    async def noted() -> bool:
        return sorted(await session.get_children(znodes.FAILED_BROKERS)) == wanted

    await wait_until(noted, f"{wanted} are noted as failed", 20)


async def kinds(controller: RunningController, **wanted: Any) -> list[str]:
    answer = await controller.http.get("/v1/audit", params={"order": "oldest", **wanted})
    assert answer.status_code == 200, answer.text
    return [entry["kind"] for entry in answer.json()["entries"]]


async def until_kinds(controller: RunningController, *wanted: str) -> None:
    """Wait until the audit has exactly these entries about broker 1."""

    async def written() -> bool:
        return await kinds(controller, broker=1) == [*wanted]

    await wait_until(written, f"the audit has {wanted}", 20)


async def down(controller: RunningController) -> dict[int, dict[str, Any]]:
    """Return the brokers that are shown as down, by id."""
    answer = await controller.http.get("/v1/failed-brokers")
    assert answer.status_code == 200, answer.text
    return {row["id"]: row for row in answer.json()["brokers"]}


async def until_shown(controller: RunningController, states: dict[int, str]) -> None:
    """Wait until exactly these brokers are shown as down: a moment after ZooKeeper has it."""

    async def shown() -> bool:
        return {broker: row["state"] for broker, row in (await down(controller)).items()} == states

    await wait_until(shown, f"the controller shows {states}")


async def forget(controller: RunningController, broker: int) -> tuple[int, dict[str, Any]]:
    answer = await controller.http.delete(f"/v1/failed-brokers/{broker}")
    return answer.status_code, answer.json()


async def failures(controller: RunningController) -> list[dict[str, Any]]:
    answer = await controller.http.get("/v1/failed-brokers/history")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["failures"]
    return found


async def set_interval(controller: RunningController, interval_ms: int) -> None:
    body = {"set": {"failed.broker.interval.ms": str(interval_ms)}}
    answer = await controller.http.patch("/v1/configs", json=body)
    assert answer.status_code == 200, answer.text

"""The console's pages of tasks: moves, drains, failures, plans, and every action on them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from leadline_client.producer import AsyncProducer
from leadline_client.wire import NewTopic
from tests.support.browser.console import (
    arrived,
    carry_out,
    check_looks,
    confirm,
    console,
    dry_run,
    line_of,
    open_form,
    run,
    run_line,
)
from tests.support.services.cluster import CALM, Cluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SLOW = "slow"
SLOWLY = "64"
"""A throttle (bytes per second) at which no move of a test ends."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(folder, brokers=4, settings=CALM) as running:
        await running.client.create_topic(
            NewTopic(SLOW, replica_assignment={0: (1, 2), 1: (1, 2), 2: (1, 2)})
        )
        await running.in_sync(SLOW, 2)
        async with AsyncProducer(running.client) as producer:
            for number in range(15):
                # A batch each: a throttle delays what follows a batch, and splits none.
                await (await producer.send(SLOW, b"x" * 20_000, partition=number % 3))
        yield running


async def read(cluster: Cluster, path: str) -> Any:
    return (await cluster.get("broker-1", path)).json()


async def has_first_replicas(cluster: Cluster, partition: int) -> bool:
    """Tell whether, as a broker knows it, a partition has the replicas that it had at first."""
    row = (await cluster.client.describe(SLOW)).partitions[partition]
    return row.replicas == (1, 2)


async def until_first_replicas(cluster: Cluster, partition: int) -> None:
    await wait_until(lambda: has_first_replicas(cluster, partition), "it has its first replicas")


async def start(cluster: Cluster, partition: int, target: list[int]) -> str:
    """Start a move that does not end by itself; return the id of its task."""
    body = {
        "partitions": [{"topic": SLOW, "partition": partition, "replicas": target}],
        "throttle_bytes_per_s": int(SLOWLY),
    }
    answer = await cluster.post("broker-1", "/v1/reassignments", json=body)
    assert answer.is_success, answer.text
    task: str = answer.json()["id"]
    return task


async def ended(cluster: Cluster, task: str) -> str:
    """Wait until a task is over, and return its state."""

    async def state() -> str | None:
        found: str = (await read(cluster, f"/v1/tasks/{task}"))["state"]
        return found if found in ("done", "cancelled", "failed") else None

    return await wait_until(state, f"task {task} is over")


async def test_partitions_are_chosen_tried_and_reassigned_by_the_page_and_both_lines(
    cluster: Cluster,
) -> None:
    async with console(cluster.url("broker-1"), "/tasks/reassign", "Tasks") as page:
        await page.get_by_role("checkbox", name=f"Choose {SLOW}-0").check()
        await page.get_by_role("checkbox", name=f"Choose {SLOW}-1").check()
        await check_looks(page, "tasks-reassign")
        form = await open_form(page, "Reassign 2 chosen partitions …")
        await expect(form.get_by_label("New replicas")).to_have_value(
            f"{SLOW}-0: 1, 2\n{SLOW}-1: 1, 2"
        )
        await form.get_by_label("New replicas").fill(f"{SLOW}-0: 1, x")
        await expect(form).to_contain_text("line 1 is not like")
        await form.get_by_label("New replicas").fill(f"{SLOW}-0: 2, 1\n{SLOW}-1: 2, 1")
        await expect(await dry_run(form)).to_contain_text("2 partitions")
        assert await has_first_replicas(cluster, 0)
        for name in ("curl line", "command line"):
            await run_line(form, name)
        await form.get_by_label("New replicas").fill(f"{SLOW}-0: 1, 2\n{SLOW}-1: 1, 2")
        await confirm(form, "Reassign")
        await form.get_by_role("link", name="Follow the task").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Task \d+"))
        await expect(page.locator(".page-head")).to_contain_text("done")
    await until_first_replicas(cluster, 0)


async def test_a_refused_reassignment_says_that_nothing_was_changed(cluster: Cluster) -> None:
    async with console(cluster.url("broker-1"), "/tasks", "Tasks", refusals=True) as page:
        form = await open_form(page, "Reassign partitions …")
        await form.get_by_label("New replicas").fill(f"{SLOW}-0: 1, 99")
        await confirm(form, "Reassign")
        await expect(form.get_by_role("alert")).to_contain_text("Refused: nothing was changed")


async def test_a_running_task_shows_what_it_waits_for_is_throttled_and_cancelled(
    cluster: Cluster,
) -> None:
    task = await start(cluster, 0, [3, 4])
    async with console(cluster.url("broker-1"), "/tasks", "Tasks") as page:
        row = (
            page.get_by_role("table", name="Running tasks").get_by_role("row").filter(has_text=task)
        )
        await expect(row).to_contain_text("64 B/s")
        moves = page.get_by_role("table", name="Partitions in reassignment")
        await expect(moves).to_contain_text("new replicas to catch up")
        await check_looks(page, "tasks")
        await row.get_by_role("link", name=task).click()
        await arrived(page, f"Task {task}")
        await check_looks(page, "task")
        for name, value in (("curl line", "100"), ("command line", "200"), ("page", "")):
            form = await open_form(page, f"Throttle task {task} …")
            await form.get_by_label("Throttle").fill(value or "300")
            if value:
                await run_line(form, name)
                await form.get_by_role("button", name="Close").click()
            else:
                await carry_out(form, "Set the throttle")
            found = await read(cluster, f"/v1/tasks/{task}")
            assert found["throttle_bytes_per_s"] == int(value or "300")
        form = await open_form(page, f"Cancel task {task} …")
        await confirm(form, "Cancel the task")
        await expect(form.get_by_role("status")).to_contain_text("Accepted")
        assert await ended(cluster, task) == "cancelled"
    await until_first_replicas(cluster, 0)


@pytest.mark.parametrize("name", ["curl line", "command line"])
async def test_a_task_is_cancelled_by_the_lines_of_its_form(name: str, cluster: Cluster) -> None:
    task = await start(cluster, 0, [3, 4])
    async with console(cluster.url("broker-1"), f"/tasks/{task}", f"Task {task}") as page:
        await run_line(await open_form(page, f"Cancel task {task} …"), name)
        assert await ended(cluster, task) == "cancelled"


@pytest.mark.parametrize("name", ["curl line", "command line", "page"])
async def test_the_move_of_one_partition_is_cancelled(name: str, cluster: Cluster) -> None:
    task = await start(cluster, 1, [3, 4])
    async with console(cluster.url("broker-1"), "/tasks", "Tasks") as page:
        form = await open_form(page, f"Cancel the move of {SLOW}-1 …")
        if name == "page":
            await confirm(form, "Cancel the move")
            await expect(form.get_by_role("status")).to_contain_text("Accepted")
        else:
            await run_line(form, name)
        await ended(cluster, task)
    await until_first_replicas(cluster, 1)


async def made(page: Page, goal: str, brokers: str = "") -> None:
    """Have the page make a plan."""
    form = page.get_by_role("region", name="Make a plan")
    await form.get_by_label("Goal").select_option(goal)
    await form.get_by_label("Brokers", exact=False).first.fill(brokers)
    await form.get_by_role("button", name="Make the plan").click()
    await expect(page.get_by_role("region", name=f"Plan: {goal}")).to_be_visible()


async def test_a_plan_is_shown_before_and_after_and_is_refused_once_it_is_stale(
    cluster: Cluster,
) -> None:
    url = cluster.url("broker-1")
    async with console(url, "/tasks/plans", "Tasks", refusals=True) as page:
        form = page.get_by_role("region", name="Make a plan")
        await form.get_by_label("Goal").select_option("balance")
        assert "replica_spread_after" in await run_line(form, "curl line")
        await run_line(form, "command line")
        await made(page, "balance")
        brokers = page.get_by_role("table", name="Replicas, leaders and bytes")
        await expect(brokers.get_by_role("row")).to_have_count(5)
        await expect(brokers).to_contain_text("0 → ")
        await expect(page.get_by_role("table", name="Partitions that change")).to_contain_text(SLOW)
        await check_looks(page, "tasks-plan")
        apply = await open_form(page, "Apply the plan …")
        line = await line_of(apply, "curl line")
        assert "plan balance --apply" in await line_of(apply, "command line")
        task = await start(cluster, 2, [2, 1])
        await ended(cluster, task)
        await confirm(apply, "Apply the plan")
        await expect(apply.get_by_role("alert")).to_contain_text("Refused: nothing was changed")
        with pytest.raises(AssertionError, match=r'"outcome": ?"refused"'):
            await run(line)
        await apply.get_by_role("button", name="Close").click()
        await expect(page.get_by_text("The plan is stale", exact=True)).to_be_visible()


async def test_a_plan_is_applied_and_followed(cluster: Cluster) -> None:
    async with console(cluster.url("broker-1"), "/tasks/plans", "Tasks") as page:
        await made(page, "balance")
        form = await open_form(page, "Apply the plan …")
        await confirm(form, "Apply the plan")
        await form.get_by_role("link", name="Follow the task").click()
        await expect(page.locator(".page-head")).to_contain_text("done")
        task = (await page.get_by_role("heading", level=1).inner_text()).removeprefix("Task ")
        assert await ended(cluster, task) == "done"
        await page.goto(f"{cluster.url('broker-1')}/ui/tasks/past")
        past = page.get_by_role("table", name="Past tasks")
        await expect(past.get_by_role("row").filter(has_text=task)).to_contain_text("done")
        await check_looks(page, "tasks-past")


async def test_a_broker_is_drained_fails_and_is_forgotten(cluster: Cluster) -> None:
    """Last in this module, because a broker stays down."""
    url = cluster.url("broker-1")
    async with console(url, "/tasks", "Tasks") as page:
        form = await open_form(page, "Drain a broker …")
        await form.get_by_label("Broker", exact=True).select_option("4")
        await dry_run(form)
        await form.get_by_label("Leaders only").check()
        for name in ("curl line", "command line"):
            await run_line(form, name)
            for task in (await read(cluster, "/v1/tasks"))["tasks"]:
                if task["kind"] == "drain" and task["finished_at_ms"] is None:
                    await cluster.request("DELETE", "broker-1", f"/v1/tasks/{task['id']}")
                    await ended(cluster, task["id"])
        await form.get_by_label("Leaders only").uncheck()
        await confirm(form, "Drain")
        await form.get_by_role("link", name="Follow the task").click()
        await expect(page.locator(".page-head")).to_contain_text("done")
        await cluster.terminate("broker-4")
        await page.goto(f"{url}/ui/tasks/failures")
        down = page.get_by_role("table", name="Brokers that are down")
        await expect(down.get_by_role("row")).to_have_count(2)
        history = page.get_by_role("table", name="Failures of brokers")
        await expect(history.get_by_role("row")).to_have_count(2)
        await check_looks(page, "tasks-failures")
        form = await open_form(page, "Forget broker 4 …")
        await expect(form.get_by_label("command line", exact=True)).to_contain_text(
            "brokers forget 4"
        )
        await carry_out(form, "Forget the broker")
        assert (await read(cluster, "/v1/failed-brokers"))["brokers"] == []

"""The console's pages of consumer groups: who reads what, how far behind, and every action."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

from leadline_client.consumer import AsyncConsumer
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
from tests.support.services.cluster import CALM, Cluster

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOPIC, RECORDS = "orders", 20
PARTITIONS = 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(folder, brokers=2, coordinators=1, settings=CALM) as running:
        await running.active_coordinator()
        await running.client.create_topic(NewTopic(TOPIC, PARTITIONS, 2))
        await running.in_sync(TOPIC, 2)
        async with AsyncProducer(running.client) as producer:
            for number in range(RECORDS * PARTITIONS):
                await producer.send(TOPIC, b"x", partition=number % PARTITIONS)
        yield running


async def commit(cluster: Cluster, group: str, offset: int) -> None:
    offsets = [{"topic": TOPIC, "partition": one, "offset": offset} for one in range(PARTITIONS)]
    answer = await cluster.post(
        "broker-1", f"/v1/groups/{group}/offsets", json={"offsets": offsets}
    )
    assert answer.is_success, answer.text


async def committed(cluster: Cluster, group: str) -> list[int]:
    body = (await cluster.get("broker-1", f"/v1/groups/{group}/offsets")).json()
    return [row["offset"] for row in body["offsets"]]


async def groups(cluster: Cluster) -> list[str]:
    body = (await cluster.get("broker-1", "/v1/groups")).json()
    return [row["group"] for row in body["groups"]]


@asynccontextmanager
async def reading(cluster: Cluster, group: str) -> AsyncIterator[AsyncConsumer]:
    """Have a consumer read in a group meanwhile."""
    async with AsyncConsumer(cluster.client, group) as consumer:
        await consumer.subscribe([TOPIC])

        async def poll() -> None:
            while True:
                await consumer.poll(timeout_s=1)

        task = asyncio.create_task(poll())
        try:
            yield consumer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_the_list_shows_state_members_and_lag_and_leads_to_the_group(
    cluster: Cluster,
) -> None:
    await commit(cluster, "billing", 5)
    async with (
        reading(cluster, "live"),
        console(cluster.url("broker-1"), "/groups", "Groups") as page,
    ):
        table = page.get_by_role("table", name="Groups")
        billing = table.get_by_role("row").filter(has_text="billing")
        await expect(billing).to_contain_text("empty")
        await expect(billing.get_by_role("cell").nth(2)).to_have_text(str(2 * (RECORDS - 5)))
        await expect(table.get_by_role("row").filter(has_text="live")).to_contain_text("stable")
        await check_looks(page, "groups")
        await page.get_by_label("Filter").fill("bill")
        await expect(table.get_by_role("row")).to_have_count(2)
        await page.get_by_role("link", name="billing").click()
        await arrived(page, "billing")
        await expect(
            page.get_by_role("list", name="Records still to read, latest values")
        ).to_contain_text("All topics: 30")


async def test_groups_are_sorted_by_their_lag(cluster: Cluster) -> None:
    lags = {"lag-10": 10, "lag-2": 2, "lag-40": 40}
    for group, lag in lags.items():
        await commit(cluster, group, RECORDS - lag // PARTITIONS)
    async with console(cluster.url("broker-1"), "/groups", "Groups") as page:
        await page.get_by_label("Filter").fill("lag-")
        table = page.get_by_role("table", name="Groups")
        by_lag = table.get_by_role("button", name="Total lag")
        await by_lag.click()
        names = table.get_by_role("rowheader")
        await expect(names).to_have_text(["lag-2", "lag-10", "lag-40"])
        await by_lag.click()
        await expect(names).to_have_text(["lag-40", "lag-10", "lag-2"])
        await commit(cluster, "lag-2", 0)  # 40 records are left now
        await commit(cluster, "lag-40", RECORDS)
        await expect(names).to_have_text(["lag-2", "lag-10", "lag-40"])


async def test_a_group_shows_who_reads_what_and_evicts_a_member(cluster: Cluster) -> None:
    url = cluster.url("broker-1")
    async with (
        reading(cluster, "shared"),
        console(url, "/groups/shared", "shared", refusals=True) as page,
    ):
        members = page.get_by_role("table", name="Members")
        await expect(members.get_by_role("row")).to_have_count(2)
        await expect(members).to_contain_text(f"{TOPIC}: 0, 1")
        name = (await members.get_by_role("rowheader").inner_text()).strip()
        offsets = page.get_by_role("table", name="Offsets by partition")
        await expect(offsets.get_by_role("row").filter(has_text=f"{TOPIC}-1")).to_contain_text(name)
        await check_looks(page, "group")
        form = await open_form(page, "Rebalance …")
        assert "rebalance" in await run_line(form, "command line")
        assert "stable" in await run_line(form, "curl line")
        await carry_out(form, "Rebalance")
        form = await open_form(page, "Reset offsets …")
        await confirm(form, "Reset offsets")
        await expect(form.get_by_role("alert")).to_contain_text("Refused: nothing was changed")
        await form.get_by_role("button", name="Close").click()
        form = await open_form(page, f"Evict {name} …")
        await expect(form.get_by_label("command line", exact=True)).to_contain_text("groups evict")
        await carry_out(form, "Evict")
        await expect(members).not_to_contain_text(name)


@pytest.mark.parametrize(
    ("to", "fields", "expected"),
    [
        ("the earliest record", {}, [0, 0]),
        ("the end", {}, [RECORDS, RECORDS]),
        ("a time", {"Time": "2001-01-31T12:00:00"}, [0, 0]),
        ("an offset", {"Offset": "7"}, [7, 7]),
        ("an offset", {"Offset": "7", "Partitions": "1"}, [5, 7]),
        ("a shift of the committed offset", {"Shift in records": "-2"}, [3, 3]),
    ],
)
async def test_offsets_are_tried_then_reset_by_the_page_and_by_both_lines(
    to: str, fields: dict[str, str], expected: list[int], cluster: Cluster
) -> None:
    await commit(cluster, "reset", 5)
    async with console(cluster.url("broker-1"), "/groups/reset", "reset") as page:
        await expect(page.get_by_role("table", name="Offsets by partition")).to_contain_text("15")
        form = await open_form(page, "Reset offsets …")
        await form.get_by_label("To", exact=True).select_option(label=to)
        for label, value in fields.items():
            await form.get_by_label(label).fill(value)
        result = await dry_run(form)
        await expect(result.get_by_role("row")).to_have_count(
            1 + len(expected) - ("Partitions" in fields)
        )
        assert await committed(cluster, "reset") == [5, 5]
        # A shift counts from what is committed: read both lines before one of them changes that.
        for line in [await line_of(form, name) for name in ("curl line", "command line")]:
            await run(line)
            assert await committed(cluster, "reset") == expected
            await commit(cluster, "reset", 5)
        if "Shift in records" not in fields:
            await carry_out(form, "Reset offsets")
            assert await committed(cluster, "reset") == expected


async def test_forms_about_offsets_wait_until_the_offsets_are_known(cluster: Cluster) -> None:
    await commit(cluster, "slow", 5)
    known = asyncio.Event()

    async def late(route: Route) -> None:
        await known.wait()
        await route.continue_()

    async with console(cluster.url("broker-1"), "/groups/slow", "slow") as page:
        await page.route("**/v1/groups/slow/lag", late)
        await page.reload()
        for name in ("Reset offsets …", "Delete offsets …"):
            button = page.get_by_role("button", name=name)
            await expect(button).to_have_attribute("aria-disabled", "true")
            await expect(button).to_have_attribute(
                "title", "the committed offsets are not known yet"
            )
        known.set()
        form = await open_form(page, "Delete offsets …")
        await expect(form.get_by_label("Topic").get_by_role("option", name=TOPIC)).to_have_count(1)


async def test_offsets_then_the_group_are_deleted(cluster: Cluster) -> None:
    await commit(cluster, "old", 5)
    url = cluster.url("broker-1")
    async with console(url, "/groups/old", "old", refusals=True) as page:
        form = await open_form(page, "Delete offsets …")
        for name in ("curl line", "command line"):
            await run_line(form, name)
            assert await committed(cluster, "old") == []
            await commit(cluster, "old", 5)
        await form.get_by_label("Topic").select_option(TOPIC)
        await carry_out(form, "Delete offsets")
        assert await committed(cluster, "old") == []
    for way in ("curl line", "command line", "page"):
        await commit(cluster, "old", 5)
        async with console(url, "/groups/old", "old", refusals=True) as page:
            form = await open_form(page, "Delete group …")
            if way == "page":
                await carry_out(form, "Delete")
                await expect(page.get_by_text("There is no such group")).to_be_visible()
            else:
                await run_line(form, way)
        assert "old" not in await groups(cluster)


async def test_a_controller_leads_to_the_groups_of_a_broker(cluster: Cluster) -> None:
    async with console(cluster.url("controller-1"), "/groups", "Groups") as page:
        link = page.get_by_role("main").get_by_role("link", name="broker 2")
        await expect(link).to_have_attribute("href", f"{cluster.url('broker-2')}/ui/groups")

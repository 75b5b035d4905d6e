"""The console's pages of topics and brokers: every page, and every action with its effect."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from leadline_client.wire import NewTopic
from tests.support.browser.console import (
    THEMES,
    Theme,
    arrived,
    check_looks,
    close,
    confirm,
    console,
    done,
    dry_run,
    open_form,
    run_line,
    screenshot,
    serious,
)
from tests.support.browser.page import open_page
from tests.support.services.cluster import CALM, Cluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOPIC = "orders"
RECORDS = 130
PAGES = {
    TOPIC: f"/topics/{TOPIC}",
    f"{TOPIC} offsets": f"/topics/{TOPIC}/offsets",
    f"{TOPIC} records": f"/topics/{TOPIC}/records?partition=0",
    f"{TOPIC} settings": f"/topics/{TOPIC}/settings",
    f"{TOPIC}-0": f"/topics/{TOPIC}/partitions/0",
    "Brokers": "/brokers",
    "Broker 1": "/brokers/1",
    "Broker 1 replicas": "/brokers/1/replicas",
    "Broker 1 settings": "/brokers/1/settings",
    "Settings": "/settings",
}
"""By heading; what follows it in a name is the tab."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(folder, settings=CALM, racks=["a", "b", "c"]) as running:
        layout = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
        await running.client.create_topic(NewTopic(TOPIC, replica_assignment=layout))
        await running.in_sync(TOPIC, 3)
        await fill(running)
        yield running


async def fill(cluster: Cluster) -> None:
    """Append records to partition 0: text, JSON, bytes that are no text, and a large value."""
    small = [{"key": f"k{i}", "value": f"record {i}", "partition": 0} for i in range(RECORDS - 3)]
    await api(cluster, "POST", f"/v1/topics/{TOPIC}/records", {"records": small})
    special: list[dict[str, Any]] = [
        {"key": "json", "value": '{"amount":12,"items":["tea"]}'},
        {"key": "large", "value": "x" * 20_000},
        {"key": "binary", "value": bytes([0, 1, 254, 255])},
    ]
    for one in special:
        record = {
            "partition": 0,
            "key": encoded(one["key"]),
            "value": encoded(one["value"]),
            "headers": [{"name": "source", "value": encoded("test")}],
        }
        body = {"records": [record], "format": "base64"}
        await api(cluster, "POST", f"/v1/topics/{TOPIC}/records", body)


def encoded(value: Any) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return base64.b64encode(raw).decode()


async def api(cluster: Cluster, method: str, path: str, body: Any = None) -> Any:
    """Ask broker 1, as the page does."""
    return await cluster.client.administer(method, path, body)


async def partitions_of(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api(cluster, "GET", f"/v1/topics/{topic}"))["partitions"]
    return found


async def topics_of(cluster: Cluster) -> set[str]:
    return {row["name"] for row in (await api(cluster, "GET", "/v1/topics"))["topics"]}


async def go(page: Page, cluster: Cluster, path: str, title: str) -> None:
    await page.goto(f"{cluster.url('broker-1')}/ui{path}")
    await arrived(page, title)


@pytest.mark.parametrize("name", list(PAGES))
async def test_a_page_looks_right(name: str, cluster: Cluster) -> None:
    async with console(cluster.url("broker-1"), PAGES[name], heading(name)) as page:
        await expect(page.get_by_text("Loading …")).to_have_count(0)
        await check_looks(page, slug(name))


async def test_partitions_are_sorted_by_the_records_of_their_leaders(cluster: Cluster) -> None:
    async with console(cluster.url("broker-1"), f"/topics/{TOPIC}/offsets", TOPIC) as page:
        table = page.get_by_role("table", name=f"Offsets and sizes of {TOPIC}")
        await table.get_by_role("button", name="Records").click()
        sorted_by = table.get_by_role("columnheader", name="Records")
        await expect(sorted_by).to_have_attribute("aria-sort", "ascending")
        await expect(table.get_by_role("rowheader")).to_have_text(["1", "2", "0"])
        await table.get_by_role("button", name="Records").click()
        await expect(table.get_by_role("rowheader")).to_have_text(["0", "1", "2"])


@pytest.mark.parametrize("colours", THEMES)
async def test_a_record_looks_right(colours: Theme, cluster: Cluster) -> None:
    path = f"/topics/{TOPIC}/records?partition=0"
    async with console(cluster.url("broker-1"), path, TOPIC) as page:
        await page.emulate_media(color_scheme=colours)
        await page.get_by_role("button", name=f"Show record {RECORDS - 1}").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await serious(page) == []
        await screenshot(page, f"record-{colours}")


def heading(name: str) -> str:
    first, _, rest = name.partition(" ")
    return f"{first} {rest.split()[0]}" if first == "Broker" else first


def slug(name: str) -> str:
    return name.lower().replace(" ", "-")


async def test_a_topic_is_created_with_assigned_replicas_by_page_and_lines(
    cluster: Cluster,
) -> None:
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await go(page, cluster, "/topics", "Topics")
        form = await open_form(page, "Create topic …", "Create a topic")
        await form.get_by_label("Partitions").fill("4")
        await form.get_by_label("Replicas of each").fill("3")
        await expect(form.get_by_role("group", name="Placement preview")).to_contain_text(
            "broker 1 gets 4, broker 2 gets 4, broker 3 gets 4"
        )
        await form.get_by_label("Assigned replicas").fill("1:2,2:1")
        for name, line in {"by-curl": "curl line", "by-command": "command line"}.items():
            await form.get_by_label("Name").fill(name)
            await run_line(form, line)
        await form.get_by_label("Name").fill("by-page")
        await expect(await dry_run(form)).to_contain_text("2 partitions with 2 replicas")
        assert "by-page" not in await topics_of(cluster)
        await done(form, "Create")
        for name in ("by-curl", "by-command", "by-page"):
            rows = await partitions_of(cluster, name)
            assert [row["replicas"] for row in rows] == [[1, 2], [2, 1]], name
        assert wrong == []


async def test_partitions_are_added_and_removed_by_page_and_lines(cluster: Cluster) -> None:
    topic = "growing"
    await cluster.client.create_topic(NewTopic(topic, replica_assignment={0: (1, 2)}))
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await go(page, cluster, f"/topics/{topic}", topic)
        for total, by in enumerate(("page", "curl line", "command line"), 2):
            form = await open_form(page, "Add partitions …", f"Add partitions to {topic}")
            await form.get_by_label("Replicas of the new partitions").fill("2:1")
            assert await form.get_by_label("New number of partitions").input_value() == str(total)
            await dry_run(form)
            await (done(form, "Add") if by == "page" else run_line(form, by))
            await close(form)
            rows = await partitions_of(cluster, topic)
            assert [row["replicas"] for row in rows] == [[1, 2], *[[2, 1]] * (total - 1)]
            await expect(page.locator(".about")).to_contain_text(f"{total} partitions")
        for left, by in zip((3, 2, 1), ("page", "curl line", "command line"), strict=True):
            form = await open_form(page, "Remove partitions …", f"Remove partitions of {topic}")
            await expect(await dry_run(form)).to_contain_text(f"would go: {left}")
            await (done(form, "Remove") if by == "page" else run_line(form, by))
            await close(form)
            assert len(await partitions_of(cluster, topic)) == left
            await expect(page.locator(".about")).to_contain_text(f"{left} partition")
        assert wrong == []


async def test_a_topic_is_deleted_once_its_name_is_typed(cluster: Cluster) -> None:
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        for by in ("page", "curl line", "command line"):
            topic = f"going-by-{by.split()[0]}"
            await cluster.client.create_topic(NewTopic(topic, replica_assignment={0: (1, 2)}))
            await go(page, cluster, f"/topics/{topic}", topic)
            form = await open_form(page, "Delete …", f"Delete the topic {topic}")
            await form.get_by_label("Type the topic's name").fill("orders")
            submit = form.get_by_role("button", name="Delete …", exact=True)
            await expect(submit).to_have_attribute("aria-disabled", "true")
            await submit.click(force=True)
            await expect(form.get_by_role("button", name="Yes, delete")).to_have_count(0)
            await form.get_by_label("Type the topic's name").fill(topic)
            await (done(form, "Delete") if by == "page" else run_line(form, by))
            assert topic not in await topics_of(cluster)
        assert wrong == []


async def test_records_are_produced_by_page_and_lines(cluster: Cluster) -> None:
    topic = "written"
    layout = {0: (2, 1), 1: (3, 2)}
    await cluster.client.create_topic(NewTopic(topic, replica_assignment=layout))
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await go(page, cluster, f"/topics/{topic}/records?partition=1", topic)
        await expect(page.get_by_text("The partition is empty.")).to_be_visible()
        form = await open_form(page, "Produce a record …", f"Produce a record to {topic}")
        await form.get_by_label("Key").fill("it's a key")
        await form.get_by_label("Value", exact=False).last.fill('{"of": "value"')
        await form.get_by_label("The value is").select_option("json")
        await expect(form.get_by_text("is not JSON")).to_be_visible()
        await form.get_by_label("Value", exact=False).last.fill('{"of": "it\'s"}')
        await form.get_by_label("Headers").fill("source=page\nsource=again")
        await run_line(form, "curl line")
        await run_line(form, "command line")
        await done(form, "Produce")
        await expect(form).to_contain_text("Appended to partition 1 at offset 2.")
        path = f"/v1/topics/{topic}/partitions/1/records"
        answer = await cluster.get("broker-1", path, offset=0, route="any")
        found = answer.json()["records"]
        assert [row["key"] for row in found] == ["it's a key"] * 3
        assert {row["value"] for row in found} == {'{"of": "it\'s"}'}
        assert {tuple(one["value"] for one in row["headers"]) for row in found} == {
            ("page", "again")
        }
        await form.get_by_role("link", name="Show it").click()
        await expect(page.get_by_role("button", name="Show record 2")).to_be_visible()
        assert wrong == []


async def test_records_are_found_by_offset_by_time_and_by_pages(cluster: Cluster) -> None:
    async with open_page(cluster.url("broker-2")) as (page, _):
        await page.goto(f"{cluster.url('broker-2')}/ui/topics/{TOPIC}/records?partition=0")
        await arrived(page, TOPIC)
        first = page.locator("tr[data-row]").first
        await expect(first).to_contain_text(str(RECORDS - 1))
        await page.get_by_role("button", name="Previous").click()
        await expect(first).to_contain_text("record 30")
        await page.get_by_role("button", name="Oldest").click()
        await expect(first).to_contain_text("record 0")
        await page.get_by_role("button", name="Next").click()
        await expect(first).to_contain_text("record 50")
        await page.get_by_label("Offset", exact=True).fill("77")
        await page.get_by_role("button", name="Go to offset").click()
        await expect(first).to_contain_text("record 77")
        await page.get_by_label("Offset", exact=True).fill("9000")
        await page.get_by_role("button", name="Go to offset").click()
        await expect(page.get_by_role("alert")).to_contain_text("9000")
        await page.get_by_label("Time", exact=True).fill("2020-01-01T00:00")
        await page.get_by_role("button", name="Go to time").click()
        await expect(first).to_contain_text("record 0")
        await page.get_by_label("Time", exact=True).fill("2099-01-01T00:00")
        await page.get_by_role("button", name="Go to time").click()
        await expect(page.get_by_text("No record is as new as that.")).to_be_visible()


async def test_new_records_appear_by_themselves(cluster: Cluster) -> None:
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await go(page, cluster, f"/topics/{TOPIC}/records?partition=2", TOPIC)
        await expect(page.get_by_text("The partition is empty.")).to_be_visible()
        record = {"partition": 2, "value": "just now"}
        await api(cluster, "POST", f"/v1/topics/{TOPIC}/records", {"records": [record]})
        await expect(page.get_by_role("cell", name="just now")).to_be_visible()
        assert wrong == []


async def test_a_record_is_shown_as_text_json_and_hex(cluster: Cluster) -> None:
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await go(page, cluster, f"/topics/{TOPIC}/records?partition=0", TOPIC)
        await page.get_by_role("button", name=f"Show record {RECORDS - 3}").click()
        record = page.get_by_role("dialog", name=f"Record {RECORDS - 3} of {TOPIC}-0")
        value = record.get_by_role("region", name="Value")
        await expect(value).to_contain_text('{"amount":12,"items":["tea"]}')
        await record.get_by_role("radio", name="JSON").check()
        await expect(value).to_contain_text('"amount": 12,\n')
        await expect(record.get_by_role("region", name="Headers")).to_contain_text("source")
        await record.get_by_role("radio", name="Hex").check()
        await expect(value).to_contain_text("7b 22 61")
        await close(record)
        await page.get_by_role("button", name=f"Show record {RECORDS - 2}").click()
        record = page.get_by_role("dialog")
        shown = record.get_by_role("region", name="Value").locator("pre")
        assert len(await shown.inner_text()) == 4096
        await record.get_by_role("button", name="Show all of the value").click()
        assert len(await shown.inner_text()) == 20_000
        await close(record)
        await page.get_by_role("button", name=f"Show record {RECORDS - 1}").click()
        await expect(page.get_by_text("This is not text")).to_be_visible()
        await page.get_by_role("radio", name="Hex").check()
        await expect(page.get_by_text("00 01 fe ff", exact=True)).to_be_visible()
        assert wrong == []


@pytest.mark.parametrize(
    ("page_path", "title", "api_path", "name"),
    [
        (f"/topics/{TOPIC}/settings", TOPIC, f"/v1/topics/{TOPIC}/configs", "retention.ms"),
        ("/brokers/2/settings", "Broker 2", "/v1/brokers/2/configs", "log.retention.ms"),
        ("/settings", "Settings", "/v1/configs", "log.retention.ms"),
    ],
)
async def test_a_setting_is_changed_and_reset_by_page_and_lines(
    page_path: str, title: str, api_path: str, name: str, cluster: Cluster
) -> None:
    async def own() -> str | None:
        found = await api(cluster, "GET", api_path)
        level = found["level"]
        row = next(one for one in found["configs"] if one["name"] == name)
        return next((one["value"] for one in row["synonyms"] if one["source"] == level), None)

    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await go(page, cluster, page_path, title)
        await page.get_by_label("Filter").fill(name)
        for number, by in enumerate(("curl line", "command line", "page")):
            value = str(86_400_000 + number)
            form = await open_form(page, f"Edit {name}", f"Change {name}")
            await form.get_by_label("Value").fill(value)
            await expect(await dry_run(form)).to_contain_text(value)
            assert await own() is None
            await (done(form, "Change") if by == "page" else run_line(form, by))
            await close(form)
            assert await own() == value
            row = page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))
            await expect(row).to_contain_text(value)
            form = await open_form(page, f"Reset {name}", f"Reset {name}")
            await dry_run(form)
            await (done(form, "Reset") if by == "page" else run_line(form, by))
            await close(form)
            assert await own() is None
        assert wrong == []


async def test_a_broker_is_drained_of_leaders_which_an_election_brings_back(
    cluster: Cluster,
) -> None:
    async def leads() -> list[int]:
        return [row["leader"] for row in await partitions_of(cluster, TOPIC)]

    async with open_page(cluster.url("broker-1")) as (page, wrong):
        for by in ("page", "curl line", "command line"):
            await go(page, cluster, "/brokers/2", "Broker 2")
            await expect(page.get_by_role("region", name="Registration")).to_contain_text("b")
            form = await open_form(page, "Drain …", "Drain broker 2")
            await form.get_by_role("checkbox").check()
            await dry_run(form)
            if by == "page":
                await confirm(form, "Drain")
                await expect(form).to_contain_text("Accepted")
            else:
                await run_line(form, by)
            await wait_until(lambda: _without(2, leads), "broker 2 leads nothing")
            tasks = (await api(cluster, "GET", "/v1/tasks"))["tasks"]
            drain = next(one for one in tasks if one["kind"] == "drain" and is_running(one))
            await api(cluster, "DELETE", f"/v1/tasks/{drain['id']}")
            await go(page, cluster, f"/topics/{TOPIC}", TOPIC)
            form = await open_form(page, "Elect leaders …", f"Elect leaders of {TOPIC}")
            await form.get_by_label("Partitions").fill("1")
            await (done(form, "Elect") if by == "page" else run_line(form, by))
            await wait_until(lambda: _with(2, leads), "broker 2 leads again")
        assert wrong == []


def is_running(task: dict[str, Any]) -> bool:
    return task["state"] in ("preparing", "accepted", "running")


async def _without(broker: int, leads: Any) -> bool:
    return broker not in await leads()


async def _with(broker: int, leads: Any) -> bool:
    return broker in await leads()


async def test_an_unclean_election_of_all_partitions_can_be_tried(cluster: Cluster) -> None:
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await go(page, cluster, "/partitions", "Partitions")
        form = await open_form(page, "Elect leaders …", "Elect leaders of all partitions")
        await form.get_by_label("Election").select_option("unclean")
        await expect(await dry_run(form)).to_contain_text("No leader changes.")
        await form.get_by_role("button", name="Elect …").click()
        await expect(form).to_contain_text("What is lost cannot be restored.")
        assert wrong == []


async def test_the_reassignment_of_a_partition_is_cancelled_by_page_and_lines(
    cluster: Cluster,
) -> None:
    topic = "moving"
    layout = dict.fromkeys(range(3), (1,))
    alone = {"min.insync.replicas": "1"}
    new = NewTopic(topic, replica_assignment=layout, configs=alone)
    await cluster.client.create_topic(new)
    records = [{"partition": number, "value": "x" * 200_000} for number in range(3)]
    for _ in range(4):  # batches of their own: the throttle lets the first one pass
        await api(cluster, "POST", f"/v1/topics/{topic}/records", {"records": records})
    rows = [{"topic": topic, "partition": number, "replicas": [2]} for number in range(3)]
    wanted = {"partitions": rows, "throttle_bytes_per_s": 1000}
    await api(cluster, "POST", "/v1/reassignments", wanted)
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await go(page, cluster, f"/topics/{topic}", topic)
        for number, by in enumerate(("page", "curl line", "command line")):
            title = f"Cancel the reassignment of {topic}-{number}"
            form = await open_form(page, title, title)
            verb = "Cancel the reassignment"
            if by == "page":
                await confirm(form, verb)
                await expect(form).to_contain_text("returns to 1.")
            else:
                await run_line(form, by)
            if await form.is_visible():
                await close(form)
        await wait_until(lambda: _at_rest(cluster), "no reassignment is left")
        assert [row["replicas"] for row in await partitions_of(cluster, topic)] == [[1]] * 3
        await expect(page.get_by_role("region", name="In reassignment")).to_have_count(0)
        assert wrong == []


async def _at_rest(cluster: Cluster) -> bool:
    return not (await api(cluster, "GET", "/v1/reassignments"))["reassignments"]


async def test_what_the_user_has_no_right_to_is_disabled_with_the_reason(
    cluster: Cluster,
) -> None:
    url = cluster.url("broker-1")
    me = {"user": "reader", "authenticated": True, "roles": ["reader"], "grants": []}
    operations = ["read_topic", "read_topic_configs", "list_broker_replicas"]
    me |= {"operations": operations, "grants": [{"role": "r", "topics": ["*"], "groups": []}]}
    async with open_page(url) as (page, _):
        await page.route("**/v1/me", lambda route: route.fulfill(json=me))
        await page.goto(f"{url}/ui/topics/{TOPIC}")
        button = page.get_by_role("button", name="Delete …")
        await expect(button).to_have_attribute("aria-disabled", "true")
        await expect(button).to_have_accessible_description(
            "reader may not do this: it needs another role (delete_topic)"
        )
        await button.click(force=True)
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.get_by_role("link", name="Records").first.click()
        await expect(page.get_by_text("Not allowed")).to_be_visible()


async def test_a_controllers_console_says_which_broker_shows_records(cluster: Cluster) -> None:
    url = cluster.url("controller-1")
    async with open_page(url) as (page, wrong):
        await page.goto(f"{url}/ui/topics/{TOPIC}/records")
        await arrived(page, TOPIC)
        link = page.get_by_role("link", name="broker 2")
        await expect(link).to_have_attribute(
            "href", f"{cluster.url('broker-2')}/ui/topics/{TOPIC}/records"
        )
        assert wrong == []


async def test_a_partition_says_why_its_leader_changed_and_a_dead_broker_is_forgotten(
    cluster: Cluster,
) -> None:
    """Last in this module, because a broker stays down."""
    async with open_page(cluster.url("broker-1")) as (page, _):
        await go(page, cluster, f"/topics/{TOPIC}/partitions/2", f"{TOPIC}-2")
        replicas = page.get_by_role("region", name=f"Replicas of {TOPIC}-2")
        await expect(replicas.get_by_text("in sync")).to_have_count(2)
        await cluster.terminate("broker-3")
        await expect(replicas.get_by_text("dead")).to_be_visible()
        history = page.get_by_role("region", name=f"Leader and ISR history of {TOPIC}-2")
        await expect(history.get_by_text("3 → 1")).to_be_visible()
        await screenshot(page, "partition-with-a-dead-replica")
        await go(page, cluster, "/brokers/3", "Broker 3")
        form = await open_form(page, "Forget …", "Forget broker 3")
        await confirm(form, "Forget")
        await expect(form.get_by_role("alert")).to_contain_text("Refused: nothing was changed")
        await close(form)
        for topic in await topics_of(cluster):
            if any(3 in row["replicas"] for row in await partitions_of(cluster, topic)):
                await cluster.client.delete_topic(topic)
        form = await open_form(page, "Forget …", "Forget broker 3")
        await done(form, "Forget")
        assert (await api(cluster, "GET", "/v1/failed-brokers"))["brokers"] == []

"""The console where records are gone, have times of no calendar, or a page cannot be drawn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from leadline_client.wire import NewTopic
from tests.support.browser.console import arrived, close
from tests.support.browser.page import open_page
from tests.support.services.cluster import CALM, Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAR_MS = 9_000_000_000_000_000
"""A time that a record can have, after the last one of which a browser knows the date."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    settings = {**CALM, "log.retention.check.interval.ms": "100"}
    async with Cluster(tmp_path_factory.mktemp("cluster"), brokers=1, settings=settings) as running:
        yield running


async def created(cluster: Cluster, name: str, configs: dict[str, str]) -> None:
    settings = {"min.insync.replicas": "1", **configs}
    await cluster.client.create_topic(NewTopic(name, 1, 1, configs=settings))


async def produce(cluster: Cluster, topic: str, **record: object) -> None:
    body = {"records": [{"partition": 0, **record}]}
    await cluster.client.administer("POST", f"/v1/topics/{topic}/records", body)


async def show(page: Page, cluster: Cluster, topic: str, query: str = "") -> None:
    url = cluster.url("broker-1")
    await page.goto(f"{url}/ui/topics/{topic}/records?partition=0{query}")
    await arrived(page, topic)


async def test_from_an_offset_that_retention_has_removed_the_oldest_record_is_reached(
    cluster: Cluster,
) -> None:
    await created(cluster, "short", {"segment.bytes": "1024", "retention.bytes": "2048"})
    for i in range(10):
        await produce(cluster, "short", value=f"record {i} " + 900 * "x")

    async def start() -> int | None:
        path = "/v1/topics/short/partitions/0/offsets?route=any"
        found: int = (await cluster.client.administer("GET", path))["log_start_offset"]
        return found or None

    await wait_until(start, "retention has removed records")
    async with open_page(cluster.url("broker-1")) as (page, _):
        await show(page, cluster, "short", "&offset=0")
        await expect(page.get_by_role("alert")).to_contain_text("offset 0 is outside")
        button = page.get_by_role("button", name="Next", exact=True)
        await expect(button).to_have_attribute("aria-disabled", "true")
        await page.get_by_role("button", name="Oldest", exact=True).click()
        await expect(page.get_by_role("alert")).to_have_count(0)
        await expect(page.get_by_role("button", name="Show record").first).to_be_visible()
        await show(page, cluster, "short", "&offset=5000")
        await expect(page.get_by_role("alert")).to_contain_text("offset 5000 is outside")
        await page.get_by_role("button", name="Previous", exact=True).click()
        await expect(page.get_by_role("button", name="Show record 9", exact=True)).to_be_visible()


async def test_a_record_with_a_time_that_no_calendar_has_is_shown(cluster: Cluster) -> None:
    await created(cluster, "far", {"message.timestamp.after.max.ms": "-1"})
    await produce(cluster, "far", value="of the future", timestamp=FAR_MS)
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await show(page, cluster, "far")
        await expect(page.locator("tr[data-row]")).to_contain_text("of the future")
        await page.get_by_role("button", name="Show record 0").click()
        record = page.get_by_role("dialog", name="Record 0 of far-0")
        await expect(record).to_contain_text(str(FAR_MS))
        await close(record)
        await page.goto(f"{cluster.url('broker-1')}/ui/history/past?at={FAR_MS}")
        await arrived(page, "History")
        await expect(page.get_by_label("Time that is shown")).to_have_text(str(FAR_MS))
        assert wrong == []


async def test_a_time_before_1970_leads_to_the_first_record(cluster: Cluster) -> None:
    """To a broker, some negative times are ends of the log, and the others are malformed."""
    await created(cluster, "before", {})
    for value in ("first", "last"):
        await produce(cluster, "before", value=value)
    async with open_page(cluster.url("broker-1")) as (page, wrong):
        await show(page, cluster, "before", "&offset=1")
        await expect(page.locator("tr[data-row]")).to_have_count(1)
        await page.get_by_label("Time", exact=True).fill("1969-06-01T00:00")
        await page.get_by_role("button", name="Go to time").click()
        await expect(page.locator("tr[data-row]").first).to_contain_text("first")
        assert wrong == []


BREAKABLE = """
const get = Object.getOwnPropertyDescriptor(Intl.NumberFormat.prototype, "format").get;
Object.defineProperty(Intl.NumberFormat.prototype, "format", {
  get() { if (window.broken) throw new Error("numbers are broken"); return get.call(this); },
});
"""


async def test_a_page_that_cannot_be_drawn_says_so_and_the_others_go_on(cluster: Cluster) -> None:
    """It stayed as it was, still said that it is live, and no link worked any more."""
    await created(cluster, "any", {})
    url = cluster.url("broker-1")
    async with open_page(url) as (page, _):
        await page.add_init_script(BREAKABLE)
        await page.goto(f"{url}/ui/settings")
        await arrived(page, "Settings")
        await page.evaluate("window.broken = true")
        await page.get_by_role("link", name="Topics", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("numbers are broken")
        await page.evaluate("window.broken = false")
        await page.get_by_role("link", name="Brokers", exact=True).click()
        await arrived(page, "Brokers")
        await expect(page.get_by_role("alert")).to_have_count(0)
        await page.get_by_role("link", name="Topics", exact=True).click()
        await expect(page.get_by_role("link", name="any", exact=True)).to_be_visible()

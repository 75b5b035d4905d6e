"""What the console shows while the broker that serves it does not answer, and afterwards."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, Response, expect

from leadline_client.wire import NewTopic
from tests.support.browser.console import arrived, confirm, open_form
from tests.support.browser.page import open_page
from tests.support.services.cluster import CALM, Cluster

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SERVING = "broker-2"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(folder, brokers=2, settings=CALM) as running:
        await running.client.create_topic(NewTopic("before", 1, 2))
        await running.in_sync("before", 2)
        yield running


async def is_disconnected(page: Page) -> None:
    """Wait until the page says that it is disconnected, and of when its data are."""
    await expect(page.get_by_role("status", name="Connection")).to_contain_text("Disconnected")
    notice = page.locator(".notice", has_text="Disconnected, trying again")
    since = re.compile(r"What is shown is from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, \d+ \w+")
    await expect(notice).to_contain_text(since)
    await expect(notice.get_by_role("link", name="broker 1")).to_be_visible()
    await expect(page.get_by_role("link", name="before")).to_be_visible()


async def is_live_again(page: Page, topic: str) -> None:
    """Wait until the page is live, and shows what was created meanwhile, without a reload."""
    await expect(page.get_by_role("status", name="Connection")).to_have_text("Live")
    await expect(page.locator(".notice")).to_have_count(0)
    await expect(page.get_by_role("link", name=topic)).to_be_visible()
    assert await page.evaluate("window.kept")


async def test_a_frozen_broker_is_noticed_and_followed_again(cluster: Cluster) -> None:
    """Its connections stay open, and the stream of events does not end."""
    url = cluster.url(SERVING)
    async with open_page(url) as (page, _):
        await page.goto(f"{url}/ui/topics")
        await arrived(page, "Topics")
        await page.evaluate("window.kept = true")
        with cluster.frozen(SERVING):
            await is_disconnected(page)
        await cluster.client.create_topic(NewTopic("after-the-freeze", 1, 2))
        await is_live_again(page, "after-the-freeze")


async def test_a_killed_broker_is_noticed_and_followed_after_its_restart(
    cluster: Cluster,
) -> None:
    url = cluster.url(SERVING)
    async with open_page(url) as (page, _):
        await page.goto(f"{url}/ui/topics")
        await arrived(page, "Topics")
        await page.evaluate("window.kept = true")
        await cluster.kill(SERVING)
        await is_disconnected(page)
        cluster.restart(SERVING)
        await cluster.until_ready(SERVING)
        await cluster.client.create_topic(NewTopic("after-the-restart", 1, 2))
        await is_live_again(page, "after-the-restart")


HELD_LIMITS = """
window.limits = [];
AbortSignal.timeout = () => {
  const limit = new AbortController();
  window.limits.push(() => limit.abort(new DOMException("too late", "TimeoutError")));
  return limit.signal;
};
"""
"""Time limits that pass when the test says so."""


async def test_a_change_that_is_never_answered_has_an_unknown_outcome(cluster: Cluster) -> None:
    """A frozen broker keeps the connection open: the form would wait for ever."""
    url = cluster.url(SERVING)
    async with open_page(url) as (page, _):
        await page.add_init_script(HELD_LIMITS)
        await page.goto(f"{url}/ui/topics/before")
        await arrived(page, "before")
        form = await open_form(page, "Elect leaders …")
        with cluster.frozen(SERVING):
            await confirm(form, "Elect")
            await expect(form.get_by_role("button", name="Working …")).to_be_visible()
            await page.evaluate("window.limits.forEach(pass => pass())")
            await expect(form.get_by_role("status")).to_contain_text(["Outcome unknown"])


async def in_background(page: Page, *, hidden: bool) -> None:
    """Tell a page that the user has gone to another tab, or has come back to it."""
    await page.evaluate(
        "hidden => { const known = { value: hidden, configurable: true };"
        " Object.defineProperty(document, 'hidden', known);"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


async def test_a_tab_in_the_background_keeps_no_connection_and_is_live_when_it_is_back(
    cluster: Cluster,
) -> None:
    """A browser has six connections with a server: the stream of each tab would keep one."""
    url = cluster.url(SERVING)
    async with open_page(url) as (page, _):
        await page.goto(f"{url}/ui/topics")
        connection = page.get_by_role("status", name="Connection")
        await expect(connection).to_have_text("Live")
        async with page.expect_event("requestfailed", lambda it: "/v1/events" in it.url):
            await in_background(page, hidden=True)
        await expect(connection).to_have_text("Live, by polling")
        await cluster.client.create_topic(NewTopic("while-away", 1, 2))
        await in_background(page, hidden=False)
        await expect(connection).to_have_text("Live")
        await expect(page.get_by_role("link", name="while-away")).to_be_visible()


async def test_a_page_that_reads_again_reads_what_has_changed(cluster: Cluster) -> None:
    """The stream of events is cut: the page has only its requests for the metadata."""
    url = cluster.url(SERVING)
    await cluster.client.create_topic(NewTopic("goes", 1, 2))
    async with open_page(url) as (page, problems):
        answers: list[Response] = []
        page.on("response", lambda it: answers.append(it) if "/v1/metadata" in it.url else None)
        await page.route("**/v1/events*", lambda route: route.abort())
        await page.goto(f"{url}/ui/topics")
        await arrived(page, "Topics")
        await expect(page.get_by_role("link", name="goes")).to_be_visible()
        await cluster.client.create_topic(NewTopic("comes", 1, 2))
        await cluster.client.delete_topic("goes")
        await expect(page.get_by_role("link", name="comes")).to_be_visible()
        await expect(page.get_by_role("link", name="goes")).to_have_count(0)
        await expect(page.get_by_role("link", name="before")).to_be_visible()
        bodies = [await it.json() for it in answers if it.status == 200]
        assert ["changed_after" in body for body in bodies].count(False) == 1
        assert all("before" not in body["topics"] for body in bodies[1:])
        problems[:] = [one for one in problems if "ERR_FAILED" not in one]

"""The web console in a real browser: every page of a running cluster, by role and name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from leadline_client.wire import NewTopic
from tests.support.browser.console import (
    THEMES,
    WIDTHS,
    Theme,
    arrived,
    check_looks,
    console,
    open_form,
    serious,
)
from tests.support.browser.page import open_page
from tests.support.services.cluster import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = {
    "Overview": "/",
    "Topics": "/topics",
    "Partitions": "/partitions",
    "Brokers": "/brokers",
    "Groups": "/groups",
    "Tasks": "/tasks",
    "History": "/history",
    "Settings": "/settings",
}
TOPIC = "orders"
LINES = "element => new Set([...element.getClientRects()].map(one => one.top)).size"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    settings = {"zookeeper.session.timeout.ms": "4000"}
    async with Cluster(folder, controllers=1, coordinators=1, settings=settings) as running:
        await running.client.create_topic(NewTopic(TOPIC, 6, 3))
        await running.in_sync(TOPIC, 3)
        yield running


@pytest.mark.parametrize("service", ["broker-1", "controller-1"])
async def test_every_entry_of_the_navigation_leads_to_its_page_by_keyboard(
    service: str, cluster: Cluster
) -> None:
    url = cluster.url(service)
    async with open_page(url) as (page, wrong):
        await page.goto(url)
        await page.wait_for_url(f"{url}/ui")
        for title, path in PAGES.items():
            link = page.get_by_role("navigation", name="Console").get_by_role("link", name=title)
            await link.focus()
            await page.keyboard.press("Enter")
            await arrived(page, title)
            await expect(link).to_have_attribute("aria-current", "page")
            if path != "/":  # It takes the focus a little after it is shown.
                await expect(page.get_by_role("heading", level=1)).to_be_focused()
            assert page.url == f"{url}/ui{path if path != '/' else ''}"
        before = list(PAGES)[-2]
        await page.go_back()
        await arrived(page, before)
        await page.reload()
        await arrived(page, before)
        assert wrong == []


@pytest.mark.parametrize("title", [*PAGES, TOPIC])
async def test_a_page_looks_right(title: str, cluster: Cluster) -> None:
    """Most have nothing to list here; other files look at them when they have."""
    path = PAGES.get(title, f"/topics/{title}")
    async with console(cluster.url("broker-1"), path, title) as page:
        await check_looks(page, title.lower())


@pytest.mark.parametrize("colours", THEMES)
async def test_a_form_has_no_serious_violation(colours: Theme, cluster: Cluster) -> None:
    async with console(cluster.url("broker-1"), "/topics", "Topics") as page:
        await page.emulate_media(color_scheme=colours)
        await open_form(page, "Create topic …", "Create a topic")
        assert await serious(page) == []


async def test_a_topic_is_tried_then_created_after_a_confirmation(cluster: Cluster) -> None:
    url = cluster.url("broker-1")
    async with open_page(url) as (page, wrong):
        await page.goto(f"{url}/ui/topics")
        await page.get_by_role("button", name="Create topic …").click()
        form = page.get_by_role("dialog", name="Create a topic")
        await form.get_by_label("Partitions").fill("2")
        await form.get_by_label("Name").fill("-made-here")
        await expect(form.get_by_label("command line", exact=True)).to_contain_text(
            f"leadline topics create --partitions 2 --bootstrap {url} -- -made-here"
        )
        await form.get_by_label("Name").fill("made-here")
        await expect(form.get_by_label("command line", exact=True)).to_contain_text(
            "leadline topics create made-here --partitions 2"
        )
        await form.get_by_role("button", name="Try (dry run)").click()
        await expect(form.get_by_role("group", name="Result of the dry run")).to_contain_text(
            "nothing was changed"
        )
        assert "made-here" not in (await cluster.client.metadata()).topics
        await form.get_by_role("button", name="Create …").click()
        await form.get_by_role("button", name="Yes, create").click()
        await form.get_by_role("link", name="Show made-here").click()
        await arrived(page, "made-here")
        assert wrong == []


async def test_a_refused_action_says_that_nothing_was_changed(cluster: Cluster) -> None:
    url = cluster.url("broker-1")
    async with open_page(url) as (page, _):
        await page.goto(f"{url}/ui/topics")
        await page.get_by_role("button", name="Create topic …").click()
        form = page.get_by_role("dialog", name="Create a topic")
        await form.get_by_label("Name").fill(TOPIC)
        await form.get_by_role("button", name="Create …").click()
        await form.get_by_role("button", name="Yes, create").click()
        await expect(form.get_by_role("alert")).to_contain_text("Refused: nothing was changed")


async def test_any_broker_reports_of_any_other_and_names_what_is_wrong(cluster: Cluster) -> None:
    for broker in (1, 2):
        load = await cluster.get("broker-1", f"/v1/brokers/{broker}/load")
        assert (load.status_code, load.json()["broker_id"]) == (200, broker)
        part = {"topic": TOPIC, "first": 2, "last": 3}
        found = await cluster.get("broker-1", f"/v1/brokers/{broker}/replicas", **part)
        rows = [row for row in await cluster.replicas(f"broker-{broker}") if row["topic"] == TOPIC]
        chosen = [row for row in rows if row["partition"] in (2, 3)]
        assert without_times(found.json()["replicas"]) == without_times(chosen)
    for path, status in {
        "/v1/brokers/99/load": 404,
        "/v1/brokers/x/load": 400,
        "/v1/brokers/1/replicas": 400,
        f"/v1/brokers/1/replicas?topic={TOPIC}&first=-1": 400,
    }.items():
        assert (await cluster.get("broker-1", path)).status_code == status, path


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of replicas without what the leader knows of its followers' last fetches."""
    return [{name: row[name] for name in row if name != "followers"} for row in rows]


async def test_the_theme_that_is_chosen_is_kept(cluster: Cluster) -> None:
    url = cluster.url("broker-1")
    async with open_page(url) as (page, _):
        await page.goto(f"{url}/ui")
        light = await background(page)
        await page.get_by_label("Theme").select_option("dark")
        dark = await background(page)
        assert dark != light
        await page.reload()
        await arrived(page, "Overview")
        assert await background(page) == dark


async def background(page: Page) -> str:
    found: str = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return found


async def test_the_name_of_the_controller_stays_on_its_line(cluster: Cluster) -> None:
    async with console(cluster.url("broker-1"), "/", "Overview") as page:
        name = page.get_by_role("link", name="controller 1", exact=True)
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 1000})
            assert await name.evaluate(LINES) == 1, width


async def test_the_logo_is_shown(cluster: Cluster) -> None:
    async with console(cluster.url("broker-1"), "/", "Overview") as page:
        logo = page.get_by_role("link", name="Leadline").locator("img")
        await expect(logo).to_be_visible()
        assert await logo.evaluate("image => image.complete && image.naturalWidth > 0")


@pytest.mark.parametrize(
    ("apart", "labels"),
    [
        (15, ["09:59:30\n2026-01-31", "09:59:45", "10:00:00"]),
        (60, ["09:59\n2026-01-31", "10:00", "10:01"]),
        (86_400, ["09:59\n2026-01-31", "09:59\n2026-02-01", "09:59\n2026-02-02"]),
    ],
)
async def test_times_of_a_chart_have_24_hours_and_iso_dates(
    apart: int, labels: list[str], cluster: Cluster
) -> None:
    async with console(cluster.url("broker-1"), "/", "Overview") as page:
        shown = await page.evaluate(
            """async (apart) => {
                const { timesOf } = await import("/ui/static/components/chart.js");
                const first = new Date(2026, 0, 31, 9, 59, 30).getTime() / 1000;
                return timesOf(null, [0, 1, 2].map((i) => first + i * apart), 0, 0, apart);
            }""",
            apart,
        )
        assert shown == labels


async def test_the_end_of_a_leader_changes_the_grid_without_a_reload(cluster: Cluster) -> None:
    """Last in this module, because a broker stays down."""
    url, victim = cluster.url("broker-1"), "broker-3"
    async with open_page(url) as (page, _):
        await page.goto(f"{url}/ui/topics/{TOPIC}")
        await arrived(page, TOPIC)
        leaders = page.locator('[data-role="leader"]').and_(page.locator("td *"))
        await expect(leaders).to_have_count(6)
        row = page.get_by_role("row").filter(has=page.locator("td:nth-child(7) [data-role=leader]"))
        await expect(row).to_have_count(2)  # those that broker 3 leads
        await page.evaluate("window.kept = true")
        await cluster.kill(victim)
        await expect(row).to_have_count(0)
        await expect(leaders).to_have_count(6)
        await expect(page.locator('td [data-role="down"]')).to_have_count(6)
        assert await page.evaluate("window.kept")
        await page.get_by_role("link", name="Overview").click()
        findings = page.get_by_role("region", name="Findings")
        await expect(findings).to_contain_text("under-replicated partitions")
        await expect(findings).to_contain_text("under-replicated-partitions, as in leadline doctor")

"""The console's pages of the past: the audit, why a leader changed, and the cluster as it was."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from leadline_client.wire import NewTopic
from tests.support.browser.console import arrived, check_looks, console, line_of, run
from tests.support.services.cluster import CALM, Cluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOPIC = "orders"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster whose broker 1 led a partition, stopped, returned, and was then passed over."""
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(folder, brokers=2, settings=CALM) as running:
        await running.client.create_topic(NewTopic(TOPIC, replica_assignment={0: (1, 2)}))
        await running.in_sync(TOPIC, 2)
        refused = await running.post("broker-2", "/v1/topics", json={"name": TOPIC})
        assert not refused.is_success
        await running.terminate("broker-1")
        await running.leader_of(TOPIC, 0, not_in=["broker-1"])
        running.restart("broker-1")
        await running.until_ready("broker-1")
        await running.in_sync(TOPIC, 2)
        yield running


async def audit(cluster: Cluster, **wanted: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = (await cluster.get("broker-2", "/v1/audit", **wanted)).json()[
        "entries"
    ]
    return entries


async def test_the_audit_is_searched_and_an_entry_shows_before_and_after(cluster: Cluster) -> None:
    url = cluster.url("broker-2")
    async with console(url, "/history", "History") as page:
        entries = page.get_by_role("table", name="Audit entries")
        await expect(entries.get_by_role("row").nth(3)).to_be_visible()
        await check_looks(page, "history")
        search = page.get_by_role("search")
        await search.get_by_label("Outcome").select_option("refused")
        await search.get_by_role("button", name="Search").click()
        refused = await audit(cluster, outcome="refused")
        await expect(entries.get_by_role("row")).to_have_count(1 + len(refused))
        await search.get_by_role("button", name="Clear").click()
        await search.get_by_label("Topic").fill(TOPIC)
        await search.get_by_label("Partition").fill("0")
        await search.get_by_label("From").fill("2001-01-31T12:00:00")
        await search.get_by_role("button", name="Search").click()
        about = await audit(cluster, topic=TOPIC, partition=0)
        await expect(entries.get_by_role("row")).to_have_count(1 + len(about))
        await page.get_by_role("searchbox", name="Filter").fill("nothing has this text")
        await expect(page.get_by_text("No row matches the filter.")).to_be_visible()
        await page.get_by_role("searchbox", name="Filter").fill("")
        changed = next(one for one in about if one["changes_total"] and one["changes"][0]["before"])
        await page.get_by_role("link", name=str(changed["id"]), exact=True).click()
        await arrived(page, f"Audit entry {changed['id']}")
        await expect(page.get_by_role("table", name="Partitions that changed")).to_contain_text(
            f"{TOPIC}-0"
        )
        await check_looks(page, "history-entry")


async def test_the_audit_is_read_page_by_page_without_gaps(cluster: Cluster) -> None:
    for number in range(120):  # changes, because refusals are summed up
        changed = {"set": {"retention.ms": str(1_000_000 + number)}}
        path = f"/v1/topics/{TOPIC}/configs"
        answer = await cluster.request("PATCH", "broker-2", path, json=changed)
        assert answer.is_success, answer.text
    async with console(cluster.url("broker-2"), "/history", "History") as page:
        read = page.get_by_role("region", name="Entries").get_by_role("status")
        await expect(read).to_have_text("100 entries")
        await page.get_by_role("button", name="Read older entries").click()
        head = (await audit(cluster, page_size=1))[0]["id"]
        expected = min(200, head + 1)
        await expect(read).to_have_text(f"{expected} entries")


async def test_the_page_says_why_a_leader_changed(cluster: Cluster) -> None:
    async with console(cluster.url("broker-2"), "/history/partition", "History") as page:
        form = page.get_by_role("form", name="Choose a partition")
        await form.get_by_label("Topic").fill(TOPIC)
        await form.get_by_label("Partition").fill("0")
        await form.get_by_role("button", name="Explain").click()
        changes = page.get_by_role("table", name=f"Changes of {TOPIC}-0")
        await expect(changes).to_contain_text("1 → 2")
        path = f"/v1/topics/{TOPIC}/partitions/0/history"
        known = (await cluster.get("broker-2", path)).json()["changes"]
        await expect(changes.get_by_role("row")).to_have_count(1 + len(known))
        assert "isr" in await run(await line_of(page.get_by_role("main"), "command line"))
        await check_looks(page, "history-partition")
        # It is live: the next change is shown without a reload.
        elected = await cluster.post(
            "broker-2",
            "/v1/elections",
            json={"type": "preferred", "partitions": [{"topic": TOPIC, "partition": 0}]},
        )
        assert elected.is_success, elected.text
        await expect(changes).to_contain_text("2 → 1")


async def test_a_slider_redraws_the_cluster_of_a_past_moment_by_keyboard(cluster: Cluster) -> None:
    url = cluster.url("broker-2")
    down = await wait_until(lambda: broker_1_is_down(cluster), "the audit has the failure")
    async with console(url, "/history/past", "History") as page:
        shown = page.get_by_label("Time that is shown")
        await expect(shown).to_have_text("Now")
        slider = page.get_by_role("slider", name="Time")
        await slider.focus()
        await page.keyboard.press("Home")
        await expect(slider).not_to_have_attribute("aria-valuetext", "now")
        await expect(page.get_by_text("Rebuilding")).to_have_count(0)
        await page.keyboard.press("PageUp")
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("End")
        await expect(shown).to_have_text("Now")
        await page.get_by_role("textbox", name="Time").fill(str(down))
        await page.get_by_role("button", name="Go", exact=True).click()
        brokers = page.get_by_role("table", name="Brokers at that time")
        first = brokers.get_by_role("row").filter(has=page.get_by_role("rowheader", name="1"))
        await expect(first).to_contain_text("down")
        partitions = page.get_by_role("table", name="Partitions by broker at that time")
        row = partitions.get_by_role("row").filter(has_text=f"{TOPIC}-0")
        await expect(row.get_by_role("cell").nth(2)).to_have_text("2")
        await page.get_by_label("Only those that need attention").check()
        await expect(partitions.get_by_role("row")).to_have_count(2)
        await check_looks(page, "history-past")
        await page.get_by_role("button", name="Next event").click()
        await expect(page).not_to_have_url(f"{url}/ui/history/past?at={down}")
        await page.get_by_role("button", name="Previous event").click()
        await page.get_by_role("button", name="Back to now").click()
        await expect(shown).to_have_text("Now")
        assert page.url == f"{url}/ui/history/past"


async def broker_1_is_down(cluster: Cluster) -> int | None:
    """Return a time at which broker 1 was down and broker 2 led, if the past has one."""
    for entry in await audit(cluster, page_size=500):
        at = int(entry["time"])
        past = (await cluster.get("broker-2", "/v1/cluster", at=at)).json()
        if past.get("brokers") == [2] and past["topics"][TOPIC]["partitions"][0][1] == 2:
            return at
    return None


async def test_an_unknown_time_before_the_history_is_reported(cluster: Cluster) -> None:
    long_ago = int((time.time() - 10 * 365 * 86_400) * 1000)
    url = cluster.url("broker-2")
    async with console(url, "/history", "History", refusals=True) as page:
        answer = await cluster.get("broker-2", "/v1/cluster", at=long_ago)
        await page.goto(f"{url}/ui/history/past?at={long_ago}")
        if answer.is_success:
            await expect(page.get_by_role("table", name="Brokers at that time")).to_be_visible()
        else:
            await expect(page.get_by_role("alert")).to_contain_text(answer.json()["message"])

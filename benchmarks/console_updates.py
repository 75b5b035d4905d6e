"""How fluid the console stays in a large cluster, and how soon it shows a killed leader.

Run `python benchmarks/console_updates.py [--topics 100] [--kills 5] [--groups 1000]`; it needs
Chromium. `leadline up --restart` runs three brokers, with topics of 100 partitions and 3 replicas.
On each page brokers are killed, and come back. Printed are, as median, p99 and maximum: the time
of the script for each update of the page, and, of pages that show brokers, the time from the kill
until the page shows it.

Then the page of the groups is opened; printed are the time until it lists them, and the longest
task of the browser meanwhile.

The time of a script is that of the clock. A user's browser does not share its processors with the
cluster, so that the browser here runs before the cluster, where the system allows that (as root).

Goals: 50 ms for an update at 10,000 partitions; 2 s from the kill to the page.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from playwright.async_api import Page, expect

from leadline_client import AsyncClient, LeadlineError, NewTopic, TopicPartition

# `leadline up` and the browser as the tests run them.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash_detection import end, summary, urls

from tests.support.browser.console import arrived
from tests.support.browser.page import open_page, shared_browser
from tests.support.services.cluster import wait_until
from tests.support.services.up import Up, running

PARTITIONS = 100
DEADLINE_S = 60.0
TOPIC = "topic-0000"
PAGES = {
    "overview": ("", "Overview"),
    "topics": ("/topics", "Topics"),
    "partitions": ("/partitions", "Partitions"),
    "one topic": (f"/topics/{TOPIC}", TOPIC),
}
READ_UPDATES = "performance.getEntriesByName('leadline-update').map(one => one.duration)"
NO_LEADER_IN_COLUMN = """column => ![...document.querySelectorAll("table.grid tr[data-row]")]
    .some(row => row.cells[column].querySelector("[data-role=leader]"))"""
LIVE_BROKERS_ARE = """count => [...document.querySelectorAll(".stat")].some(
    one => one.innerText.includes("Live brokers")
        && one.querySelector("dd").firstChild.textContent === count)"""
WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver(list => {
  for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({type: "longtask", buffered: true});
"""


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--groups", type=int, default=1000)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory) / "cluster", "up", "--restart") as up,
    ):
        asyncio.run(measure(up, arguments.topics, arguments.kills, arguments.groups))


async def measure(up: Up, topics: int, kills: int, groups: int) -> None:
    """Fill the cluster, and measure every page."""
    async with AsyncClient(urls(up)) as client, shared_browser():
        print(f"{prioritize_browser()} threads of the browser have priority")
        for number in range(topics):
            await client.create_topic(NewTopic(f"topic-{number:04}", PARTITIONS, 3))
        await wait_until(partial(whole, client, topics), deadline_s=DEADLINE_S)
        print(f"{topics * PARTITIONS} partitions, {kills} kills a page; milliseconds")
        for name in PAGES:
            await measure_page(up, client, name, topics, kills)
        await measure_groups(up, client, groups)
    print(f"load average {os.getloadavg()[0]:.1f}")


def prioritize_browser() -> int:
    """Schedule the browser's threads before all others; return how many they are."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if "chrom" in (process / "exe").readlink().name:
                for thread in (process / "task").iterdir():
                    os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
                    found += 1
    return found


async def whole(client: AsyncClient, topics: int) -> bool:
    """Whether every replica of every topic is in sync."""
    found = await client.metadata()
    rows = [row for topic in found.topics.values() for row in topic.partitions]
    return len(rows) == topics * PARTITIONS and all(len(row.isr) == 3 for row in rows)


async def leads(client: AsyncClient, broker: int) -> bool:
    """Whether a broker leads a partition of the first topic."""
    return any(row.leader == broker for row in (await client.describe(TOPIC)).partitions)


async def measure_page(up: Up, client: AsyncClient, name: str, topics: int, kills: int) -> None:
    """Kill brokers while a page of broker 1 is open."""
    path, title = PAGES[name]
    url = urls(up)[0]
    shown: list[float] = []
    updates: list[float] = []
    async with open_page(url) as (page, _):
        await page.goto(f"{url}/ui{path}")
        await arrived(page, title)
        for number in range(kills):
            await page.evaluate("performance.clearMeasures('leadline-update')")
            victim = 2 + number % 2
            begun = time.monotonic()
            end(up, "brokers", victim)
            if await until_shown(page, victim):
                shown.append((time.monotonic() - begun) * 1000)
            await wait_until(partial(leads_nothing, client, victim), deadline_s=DEADLINE_S)
            await wait_until(partial(whole, client, topics), deadline_s=DEADLINE_S)
            await wait_until(partial(leads_again, client, victim), deadline_s=DEADLINE_S)
            updates += await page.evaluate(READ_UPDATES)
    print(f"{name:12} update          {summary(updates)}  ({len(updates)} updates)")
    if shown:
        print(f"{name:12} kill to page    {summary(shown)}")


async def leads_nothing(client: AsyncClient, broker: int) -> bool:
    """Whether a broker leads no partition of the first topic."""
    return not await leads(client, broker)


async def leads_again(client: AsyncClient, broker: int) -> bool:
    """Give every broker its partitions back; return whether a broker leads again."""
    if await leads(client, broker):
        return True
    with suppress(LeadlineError):  # An election is under way.
        await client.elect("preferred")
    return False


async def until_shown(page: Page, broker: int) -> bool:
    """Wait until the page shows no leader at a broker; return False if it shows no brokers."""
    found = page.get_by_role("columnheader").filter(has_text=re.compile(rf"^Broker {broker}\b"))
    if await found.count():
        column = await found.evaluate("cell => cell.cellIndex")
        await page.wait_for_function(NO_LEADER_IN_COLUMN, arg=column)
        return True
    if await page.get_by_role("heading", level=1).inner_text() == "Overview":
        await page.wait_for_function(LIVE_BROKERS_ARE, arg="2")
        return True
    return False


async def measure_groups(up: Up, client: AsyncClient, groups: int) -> None:
    """Commit offsets of many groups, and open the page that lists them."""
    for number in range(groups):
        position = {TopicPartition(TOPIC, number % PARTITIONS): 0}
        await client.commit_offsets(f"group-{number:04}", position)
    url = urls(up)[0]
    async with open_page(url) as (page, _):
        await page.add_init_script(WATCH_TASKS)
        begun = time.monotonic()
        await page.goto(f"{url}/ui/groups")
        await expect(page.get_by_text(f"group-{0:04}")).to_be_visible()
        listed = (time.monotonic() - begun) * 1000
        print(f"{groups} groups: listed after {listed:.0f}, longest task ", end="")
        print(f"{await page.evaluate('window.longest'):.0f}")


if __name__ == "__main__":
    main()

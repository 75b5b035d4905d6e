"""The console of a secured cluster: a browser logs in, and shows what the user's rights allow."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio
from playwright.async_api import Response, expect

from leadline_cli.secure_cluster import http_client
from leadline_client.security import Security
from leadline_client.wire import NewTopic
from tests.support.browser.console import carry_out, console, open_form, serious
from tests.support.browser.page import open_page
from tests.support.services.cluster import CALM, Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC = "orders"
WHY = re.compile("^victor may not do this: it needs another role \\(")
Login = tuple[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(folder, brokers=2, coordinators=1, settings=CALM, secure=True) as running:
        await running.active_coordinator()
        await running.client.create_topic(NewTopic(TOPIC, 2, 2))
        await running.in_sync(TOPIC, 2)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(cluster: Cluster) -> Login:
    return await new_user(cluster, "olga", "operator")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer(cluster: Cluster) -> Login:
    return await new_user(cluster, "victor", "viewer")


async def new_user(cluster: Cluster, name: str, role: str) -> Login:
    """Make a user with a role for everything; return its login, once every service knows it."""
    new = {"name": name, "grants": [{"role": role}]}
    (await cluster.post("broker-1", "/v1/users", json=new)).raise_for_status()
    made = await cluster.post("broker-1", f"/v1/users/{name}/tokens", json={})
    token: str = made.raise_for_status().json()["token"]
    await wait_until(partial(is_known, cluster, token), f"every service knows {name}")
    login, _, password = token.partition(".")
    return login, password


async def is_known(cluster: Cluster, token: str) -> bool:
    security = Security(token=token, ca_file=str(cluster.credentials.public_authority))
    async with http_client(security, timeout_s=5) as http:
        names = ("broker-1", "broker-2", "controller-1")
        urls = [f"{cluster.url(name)}/v1/brokers" for name in names]
        return all([(await http.get(url)).is_success for url in urls])


async def test_an_operator_logs_in_sees_live_data_and_creates_a_topic(
    cluster: Cluster, operator: Login
) -> None:
    url = cluster.url("broker-1")
    async with console(url, "/topics", "Topics", login=operator) as page:
        await expect(page.get_by_role("contentinfo")).to_contain_text("User olga: operator")
        # Not "Live, by polling": the stream of events has the credentials, too.
        await expect(page.get_by_role("status", name="Connection")).to_have_text("Live")
        form = await open_form(page, "Create topic …", "Create a topic")
        await form.get_by_label("Name").fill("made-here")
        await expect(form.get_by_label("curl line", exact=True)).to_contain_text(
            "$LEADLINE_TOKEN_FILE"
        )
        await carry_out(form, "Create")
        await expect(page.get_by_role("link", name="made-here", exact=True)).to_be_visible()
    entries = (await cluster.get("broker-1", "/v1/audit", kind="topic_created")).json()["entries"]
    made = next(one for one in entries if "made-here" in str(one))
    assert made["actor"] == "user:olga"


async def test_the_stream_of_events_shows_what_others_change(
    cluster: Cluster, viewer: Login
) -> None:
    async with console(cluster.url("broker-1"), "/topics", "Topics", login=viewer) as page:
        await expect(page.get_by_role("status", name="Connection")).to_have_text("Live")
        await cluster.client.create_topic(NewTopic("made-elsewhere", 1, 2))
        await expect(page.get_by_role("link", name="made-elsewhere")).to_be_visible()


PAGES = {
    "/": "Overview",
    "/topics": "Topics",
    f"/topics/{TOPIC}": TOPIC,
    f"/topics/{TOPIC}/offsets": TOPIC,
    f"/topics/{TOPIC}/records": TOPIC,
    f"/topics/{TOPIC}/settings": TOPIC,
    f"/topics/{TOPIC}/partitions/0": f"{TOPIC}-0",
    "/partitions": "Partitions",
    "/brokers": "Brokers",
    "/brokers/2": "Broker 2",
    "/groups": "Groups",
    "/tasks": "Tasks",
    "/tasks/failures": "Tasks",
    "/tasks/plans": "Tasks",
    "/tasks/past": "Tasks",
    "/history": "History",
    "/history/1": "Audit entry 1",
    "/settings": "Settings",
}


ACTIONS = {
    "/topics": ["Create topic …"],
    f"/topics/{TOPIC}": ["Add partitions …", "Remove partitions …", "Elect leaders …", "Delete …"],
    f"/topics/{TOPIC}/settings": ["Edit retention.ms"],
    "/brokers/2": ["Drain …"],
    "/tasks": ["Drain a broker …", "Reassign partitions …"],
    "/tasks/plans": ["Make the plan"],
}
"""The actions of pages, by the names of their buttons."""


@pytest.mark.parametrize("path", PAGES)
async def test_a_viewer_sees_the_page_and_its_actions_are_disabled(
    path: str, cluster: Cluster, viewer: Login
) -> None:
    """Nothing is asked for that the viewer may not read: a refusal would be reported here."""
    async with console(cluster.url("broker-1"), path, PAGES[path], login=viewer) as page:
        await expect(page.get_by_role("contentinfo")).to_contain_text("User victor: viewer")
        await expect(page.get_by_role("main")).not_to_contain_text("Loading")
        await expect(page.get_by_text("This could not be read")).to_have_count(0)
        for name in ACTIONS.get(path, []):
            button = page.get_by_role("button", name=name, exact=True)
            await expect(button).to_have_attribute("aria-disabled", "true")
            await expect(button).to_have_accessible_description(WHY)
            await button.focus()  # a button that HTML disables would not get it
            await expect(button).to_be_focused()
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_reason_of_a_disabled_action_is_shown_when_it_has_the_focus(
    cluster: Cluster, viewer: Login
) -> None:
    async with console(cluster.url("broker-1"), "/topics", "Topics", login=viewer) as page:
        button = page.get_by_role("button", name="Create topic …")
        shown = "button => getComputedStyle(button, '::after').content"
        assert await button.evaluate(shown) == "none"
        while not await button.evaluate("button => button === document.activeElement"):
            await page.keyboard.press("Tab")
        assert "it needs another role (create_topic)" in await button.evaluate(shown)
        assert await serious(page) == []


async def test_a_wrong_password_gets_no_data(cluster: Cluster, operator: Login) -> None:
    url = cluster.url("broker-1")
    statuses: set[int] = set()

    def keep(answer: Response) -> None:
        statuses.add(answer.status)

    async with open_page(url, login=(operator[0], operator[1][::-1])) as (page, _):
        page.on("response", keep)
        await page.goto(f"{url}/ui/topics")
        await expect(page.locator("body")).to_contain_text("40150")
        await expect(page.get_by_role("navigation")).to_have_count(0)
        assert statuses == {401}
        assert TOPIC not in await page.content()

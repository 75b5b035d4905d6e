"""Swagger UI on a running cluster, used as a person would: open, try out, execute.

Each operation is tried with what the page fills in by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Set
from functools import partial
from itertools import chain

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, Route, expect

from leadline_common.http.document import part_of
from tests.support.browser.page import open_page
from tests.support.browser.swagger import block_id, open_swagger
from tests.support.openapi.document import (
    DOCUMENTS,
    Described,
    as_a_story,
    broker_to_ask,
    operations_of,
)
from tests.support.services.cluster import CALM, Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANNEL_DOCUMENT = DOCUMENTS / "coordinator-channel.json"
PATIENCE_MS = 60_000
AT_A_TIME = 8
ERRORS = ("4", "5", "default")
_ID = re.compile(r'"id": "([^"]+)"')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(folder, controllers=2, coordinators=1, settings=CALM) as running:
        yield running


async def described(url: str) -> list[Described]:
    """Return the public operations of a service."""
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_MS / 1000) as client:
        document = (await client.get(f"{url}/openapi.json")).json()
    return as_a_story(operations_of(document))


def one_of_each_v3_tag(operations: list[Described]) -> list[Described]:
    """Leave out most operations of the v3 API, of which `tests/contract` tries each example."""
    first = {one.tag: one.id for one in reversed(operations)}
    return [one for one in operations if not one.tag.startswith("v3") or first[one.tag] == one.id]


async def url_of(face: str, cluster: Cluster) -> str:
    if face == "controller":
        return cluster.url("controller-1")
    return await broker_to_ask(cluster)


def block_of(page: Page, operation: Described) -> Locator:
    return page.locator(f"#{block_id(operation)}")


@pytest.mark.timeout(600)  # about eighty operations, each opened and tried by clicks
@pytest.mark.parametrize("face", [pytest.param("broker", marks=pytest.mark.slow), "controller"])
async def test_every_operation_tells_what_it_does_and_works_as_it_is_filled_in(
    face: str, cluster: Cluster
) -> None:
    create, *others = one_of_each_v3_tag(await described(await url_of(face, cluster)))
    await try_out([create], await url_of(face, cluster))
    if face == "controller":
        # A broker's page has the administration as well, and it was tried there.
        theirs = {one.id for one in await described(cluster.url("broker-1"))}
        others = [one for one in others if one.id not in theirs or one.id == "delete_topic"]
    await try_out(others, await url_of(face, cluster))


@pytest.mark.parametrize("start", ["broker-1", "controller-1", "controller-2", "coordinator-1"])
async def test_defect_23_swagger_links_the_services_of_the_cluster(
    start: str, cluster: Cluster
) -> None:
    await cluster.active_coordinator()
    async with open_page("http://127.0.0.1", any_port=True) as (page, wrong):
        await page.route("**/openapi.json", partial(_narrow, {"create_topic"}))
        for service in ("controller", "broker", "coordinator"):
            await page.goto(f"{cluster.url(start)}/docs")
            await page.get_by_role("navigation").get_by_role("link", name=service).click()
            title = page.locator(".information-container .title")
            await expect(title).to_contain_text(f"Leadline {service}", timeout=PATIENCE_MS)
        assert wrong == []


async def test_defect_23_swagger_of_the_coordinator_links_the_document_of_the_channel(
    cluster: Cluster,
) -> None:
    url = cluster.url("coordinator-1")
    async with open_page(url) as (page, wrong):
        await page.goto(f"{url}/docs")
        await page.get_by_role("link", name="AsyncAPI of the channel").click()
        await page.wait_for_url(f"{url}/asyncapi.json")
        served = json.loads(await page.locator("pre").inner_text())
        assert served == json.loads(CHANNEL_DOCUMENT.read_text(encoding="utf-8"))
        assert wrong == []


async def try_out(operations: list[Described], url: str) -> None:
    """Try operations one after another, as they are filled in.

    Swagger UI reads the whole document again for each operation that is opened, which takes
    seconds: the page is given a few operations of it at a time, without their errors.
    """
    ids: dict[str, str] = {}
    async with open_page(url) as (page, wrong):
        for first in range(0, len(operations), AT_A_TIME):
            shown = operations[first : first + AT_A_TIME]
            await page.route(f"{url}/openapi.json", partial(_narrow, {one.id for one in shown}))
            await open_swagger(page, url)
            for operation in shown:
                await try_operation(page, operation, ids, wrong)


async def _narrow(ids: Set[str], route: Route) -> None:
    served = await route.fetch()
    document = await served.json()
    for operation in chain.from_iterable(item.values() for item in document["paths"].values()):
        answers = operation["responses"].items()
        operation["responses"] = {
            status: answer for status, answer in answers if not status.startswith(ERRORS)
        }
    part = part_of(document, lambda operation: operation["operationId"] in ids)
    await route.fulfill(response=served, json=part)


async def try_operation(
    page: Page, operation: Described, ids: dict[str, str], wrong: list[str]
) -> None:
    """Try one operation; remember the id of what it made, for others to name."""
    block = block_of(page, operation)
    await check_words(block, operation)
    status, body = await execute(block, ids)
    what = f"{operation.method} {operation.path}: {status} {body}"
    if operation.may_be_refused and not status.startswith("2"):
        wrong.clear()  # the browser complains of every status that is none of success
    else:
        assert status.startswith("2"), what
    assert wrong == [], what
    made = _ID.search(body)
    if operation.names is not None and made is not None:
        ids[operation.names] = made[1]
    await block.locator(".opblock-summary-control").dispatch_event("click")


async def check_words(block: Locator, operation: Described) -> None:
    """Open an operation, and see that it shows its words."""
    await expect(block.locator(".opblock-summary-description")).to_have_text(
        operation.details["summary"]
    )
    await block.locator(".opblock-summary").click()
    await expect(block.locator(".opblock-description")).to_be_visible()


async def execute(block: Locator, ids: Mapping[str, str]) -> tuple[str, str]:
    """Press the buttons and return the status and the body that the page then shows.

    `ids` are filled in that earlier answers gave, as a person would copy them.
    """
    await block.locator(".try-out__btn").click()
    for name, value in ids.items():
        asked = block.locator(f'tr[data-param-name="{name}"] input')
        if await asked.count():
            await asked.fill(value)
    await block.locator(".execute").click()
    live = block.locator(".live-responses-table tbody tr.response").first
    await live.wait_for(timeout=PATIENCE_MS)
    status = await live.locator(".response-col_status").inner_text()
    return status.strip(), await live.locator(".response-col_description").inner_text()

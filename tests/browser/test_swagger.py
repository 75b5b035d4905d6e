"""Swagger UI on a running cluster, used as a person would: open, try out, execute.

Each operation is tried with what the page fills in by itself.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from tests.support.browser.page import open_page
from tests.support.openapi.document import Described, as_a_story, broker_to_ask, operations_of
from tests.support.services.cluster import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

FACES = ("broker", "controller")
PATIENCE_MS = 60_000
_ID = re.compile(r'"id": "([^"]+)"')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


async def described(url: str) -> list[Described]:
    """Return the public operations of a service."""
    async with httpx.AsyncClient(trust_env=False) as client:
        document = (await client.get(f"{url}/openapi.json")).json()
    return as_a_story(one for one in operations_of(document) if not one.internal)


async def url_of(face: str, cluster: Cluster) -> str:
    if face == "controller":
        return cluster.url("controller-1")
    return await broker_to_ask(cluster)


def block_of(page: Page, operation: Described) -> Locator:
    return page.locator(f"#operations-{operation.tag}-{operation.id}")


@pytest.mark.parametrize("face", FACES)
async def test_every_operation_tells_what_it_does_and_works_as_it_is_filled_in(
    face: str, cluster: Cluster
) -> None:
    create, *others = await described(await url_of(face, cluster))
    await try_out([create], await url_of(face, cluster))
    if face == "controller":
        # A broker's page has the administration as well, and it was tried there.
        theirs = {one.id for one in await described(cluster.url("broker-1"))}
        others = [one for one in others if one.id not in theirs or one.id == "delete_topic"]
    await try_out(others, await url_of(face, cluster))


async def try_out(operations: list[Described], url: str) -> None:
    """Try operations one after another on one page, as they are filled in."""
    ids: dict[str, str] = {}
    async with open_page(url) as (page, wrong):
        await page.goto(f"{url}/docs")
        for operation in operations:
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
            await block.locator(".opblock-summary-control").click()


async def check_words(block: Locator, operation: Described) -> None:
    """Open an operation, and see that it shows its words and every answer."""
    await expect(block.locator(".opblock-summary-description")).to_have_text(
        operation.details["summary"]
    )
    await block.locator(".opblock-summary").click()
    await expect(block.locator(".opblock-description")).to_be_visible()
    answers = block.locator(".responses-table tr.response")
    await expect(answers).to_have_count(len(operation.details["responses"]))


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

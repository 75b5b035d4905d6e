"""Swagger UI and ReDoc in a real browser: every operation shows, and nothing is from elsewhere."""

import importlib

import pytest
from playwright.async_api import expect

from tests.support.browser.page import open_page
from tests.support.browser.swagger import block_id, open_swagger
from tests.support.openapi.document import operations_of
from tests.support.services.http_service import running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SERVICES = ("controller", "broker", "coordinator")
WITH_TOPICS = ("controller", "broker")
READ_OPERATIONS = """blocks => blocks.map(block => [
    block.id,
    block.querySelector('.opblock-summary-method').innerText,
    block.querySelector('.opblock-summary-path').dataset.path,
    block.querySelector('.opblock-summary-description').innerText,
])"""


@pytest.mark.parametrize("service", SERVICES)
async def test_defect_23_swagger_ui_shows_every_public_operation_and_no_other(
    service: str,
) -> None:
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await open_swagger(page, url)
        await expect(page.locator(".information-container .title")).to_contain_text(app.title)
        shown = await page.locator(".opblock").evaluate_all(READ_OPERATIONS)
        assert sorted(shown) == sorted(
            [
                block_id(operation),
                operation.method.upper(),
                operation.path,
                operation.details["summary"],
            ]
            for operation in operations_of(app.openapi())
        )
        internal = {one.path for one in operations_of(app.internal_openapi())}
        assert not internal & {path for _, _, path, _ in shown}
        await expect(page.locator("#operations-tag-internal")).to_have_count(0)
        assert wrong == []


@pytest.mark.parametrize("service", WITH_TOPICS)
async def test_swagger_ui_shows_the_shared_error_examples(service: str) -> None:
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await open_swagger(page, url)
        block = page.locator("#operations-topics-create_topic")
        await block.locator(".opblock-summary").click()
        responses = app.openapi()["paths"]["/v1/topics"]["post"]["responses"]
        await expect(block.locator(".responses-table tr.response")).to_have_count(len(responses))
        lost = block.locator('tr.response[data-code="503"]')
        await expect(lost).to_contain_text("NoController")
        await expect(lost.locator("pre.example")).to_contain_text("50350")
        conflict = block.locator('tr.response[data-code="409"]')
        codes = {"TopicDeletionPending": "40950", "RequestUnderWay": "40960"}
        for name, code in codes.items():
            await conflict.locator(".examples-select-element").select_option(name)
            await expect(conflict.locator("pre.example")).to_contain_text(code)
        assert wrong == []


@pytest.mark.parametrize("service", SERVICES)
async def test_redoc_shows_every_operation(service: str) -> None:
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await page.goto(f"{url}/redoc")
        for operation in operations_of(app.openapi()):
            section = page.locator(f"[data-section-id$='/operation/{operation.id}']")
            await expect(section).to_have_count(1)
        assert wrong == []


async def test_defect_23_swagger_begins_with_folded_tags_and_a_filter() -> None:
    app = importlib.import_module("leadline_broker.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await page.goto(f"{url}/docs")
        tags = page.locator(".opblock-tag")
        await expect(tags).to_have_count(len(app.openapi()["tags"]))
        await expect(page.locator(".opblock")).to_have_count(0)
        await page.locator(".operation-filter-input").fill("audit")
        await expect(tags).to_have_count(1)
        await tags.click()
        first = page.locator(".opblock").first
        await expect(first).to_have_id("operations-audit-read_audit")
        assert wrong == []


async def test_defect_23_swagger_has_an_icon() -> None:
    app = importlib.import_module("leadline_broker.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        for path in ("/docs", "/redoc"):
            await page.goto(f"{url}{path}")
            address = await page.locator('link[rel="shortcut icon"]').get_attribute("href")
            for icon in (address, "/favicon.ico"):
                answer = await page.request.get(f"{url}{icon}")
                assert answer.headers["content-type"].startswith("image/svg")
                assert "fastapi" not in (await answer.text()).lower()
        assert wrong == []

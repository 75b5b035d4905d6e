"""Swagger UI and ReDoc in a real browser: every operation shows, and nothing is from elsewhere."""

import importlib

import pytest
from playwright.async_api import expect

from tests.support.browser.page import open_page
from tests.support.openapi.document import operations_of
from tests.support.services.http_service import running

SERVICES = ("controller", "broker")


@pytest.mark.parametrize("service", SERVICES)
async def test_swagger_ui_shows_every_operation(service: str) -> None:
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await page.goto(f"{url}/docs")
        await expect(page.locator(".information-container .title")).to_contain_text(app.title)
        for operation in operations_of(app.openapi()):
            block = page.locator(f"#operations-{operation.tag}-{operation.id}")
            await expect(block.locator(".opblock-summary-method")).to_have_text(
                operation.method.upper()
            )
            await expect(block.locator(".opblock-summary-description")).to_have_text(
                operation.details["summary"]
            )
            await expect(block.locator(".opblock-summary-path")).to_have_attribute(
                "data-path", operation.path
            )
        assert wrong == []


@pytest.mark.parametrize("service", SERVICES)
async def test_swagger_ui_shows_the_shared_error_examples(service: str) -> None:
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await page.goto(f"{url}/docs")
        block = page.locator("#operations-topics-create_topic")
        await block.locator(".opblock-summary").click()
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
            await expect(
                page.locator(f"[data-section-id$='/operation/{operation.id}']")
            ).to_have_count(1)
        assert wrong == []

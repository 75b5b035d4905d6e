"""Swagger UI and ReDoc in a real browser: every operation shows, and nothing is from elsewhere."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.browser import open_page
from tests.support.contract import METHODS
from tests.support.http_service import running

SERVICES = ("controller", "broker")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield method, path, item[method]


@pytest.mark.parametrize("service", SERVICES)
async def test_swagger_ui_shows_every_operation(service: str) -> None:
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await page.goto(f"{url}/docs")
        await expect(page.locator(".information-container .title")).to_contain_text(app.title)
        for method, path, operation in operations(app.openapi()):
            block = page.locator(f"#operations-{operation['tags'][0]}-{operation['operationId']}")
            await expect(block.locator(".opblock-summary-method")).to_have_text(method.upper())
            await expect(block.locator(".opblock-summary-description")).to_have_text(
                operation["summary"]
            )
            await expect(block.locator(".opblock-summary-path")).to_have_attribute(
                "data-path", path
            )
        assert wrong == []


@pytest.mark.parametrize("service", SERVICES)
async def test_an_operation_can_be_tried_in_swagger_ui(service: str) -> None:
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await page.goto(f"{url}/docs")
        block = page.locator("#operations-operations-healthz")
        await block.locator(".opblock-summary").click()
        await block.locator(".try-out__btn").click()
        await block.locator(".execute").click()
        await expect(
            block.locator(".live-responses-table .response .response-col_status")
        ).to_contain_text("200")
        await expect(block.locator(".live-responses-table")).to_contain_text('"alive": true')
        assert wrong == []


@pytest.mark.parametrize("service", SERVICES)
async def test_redoc_shows_every_operation(service: str) -> None:
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    async with running(app) as url, open_page(url) as (page, wrong):
        await page.goto(f"{url}/redoc")
        for _, _, operation in operations(app.openapi()):
            await expect(
                page.locator(f"[data-section-id$='/operation/{operation['operationId']}']")
            ).to_have_count(1)
        assert wrong == []

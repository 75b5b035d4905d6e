"""What tests do on a page of Swagger UI."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.support.openapi.document import Described


def block_id(operation: Described) -> str:
    """Return the id that the page gives to the block of an operation."""
    return f"operations-{operation.tag.replace(' ', '_')}-{operation.id}"


async def open_swagger(page: Page, url: str) -> None:
    """Open Swagger UI, and unfold every tag of its operations."""
    await page.goto(f"{url}/docs")
    await expect(page.locator(".opblock-tag").first).to_be_visible()
    folded = page.locator('.opblock-tag[data-is-open="false"]')
    for _ in range(await folded.count()):
        await folded.first.click()
    await expect(folded).to_have_count(0)

"""The browser that the tests of a file share."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.browser.page import shared_browser


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def browser() -> AsyncIterator[None]:
    """Keep a browser while the tests of a file run on the event loop of their module."""
    async with shared_browser():
        yield

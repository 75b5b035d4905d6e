"""A real browser for tests: Chromium as the operating system has it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return the path of the browser; without one the test is skipped, but fails under CI."""
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    message = f"no browser: none of {', '.join(NAMES)} is on the PATH"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@asynccontextmanager
async def open_page(origin: str) -> AsyncIterator[tuple[Page, list[str]]]:
    """Open a page, and give it together with a growing list of what goes wrong in it.

    Wrong are requests to any origin but `origin`, errors on the console, and
    uncaught exceptions.
    """
    wrong: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"]
        )
        page = await browser.new_page()
        page.on("request", lambda request: _note_request(wrong, origin, request.url))
        page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        try:
            yield page, wrong
        finally:
            await browser.close()


def _note_request(wrong: list[str], origin: str, url: str) -> None:
    # A blob is made by the page itself.
    if not url.startswith((f"{origin}/", f"blob:{origin}/", "data:")):
        wrong.append(f"request to {url}")

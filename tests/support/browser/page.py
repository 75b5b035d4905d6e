"""A real browser for tests, which reports whatever it should not have done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from playwright.async_api import (
    Browser,
    HttpCredentials,
    Page,
    Request,
    async_playwright,
    expect,
)

from tests.support.browser.chromium import chromium

WIDTH, HEIGHT = 1280, 1000
# A busy machine takes seconds to draw a page; what is expected of it has no time.
expect.set_options(timeout=60_000)

_shared: dict[asyncio.AbstractEventLoop, Browser] = {}


@asynccontextmanager
async def shared_browser() -> AsyncIterator[Browser]:
    """Keep one browser for all pages that are opened on this event loop.

    Raises:
        NoBrowserError: there is no browser on this machine.

    """
    loop = asyncio.get_running_loop()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            # No name resolves: what would leave the machine fails in the browser itself, too.
            executable_path=chromium(),
            args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        _shared[loop] = browser
        try:
            yield browser
        finally:
            del _shared[loop]
            await browser.close()


@asynccontextmanager
async def open_page(
    origin: str, *, any_port: bool = False, login: tuple[str, str] | None = None
) -> AsyncIterator[tuple[Page, list[str]]]:
    """Open a page, and give it together with a growing list of what goes wrong in it.

    Wrong are requests to any origin but `origin` (with `any_port`: to any other host), errors on
    the console, and uncaught exceptions. The page shares a browser, if there is one, and nothing
    that a browser stores. The browser answers a question for a name and a password by `login`,
    and trusts any certificate: the authority of a test's cluster is in no browser.

    Raises:
        NoBrowserError: there is no browser on this machine.

    """
    wrong: list[str] = []

    # Watched, not intercepted: a browser whose requests are intercepted has no cache.
    def check(request: Request) -> None:
        if not _is_own(origin, request.url, ":" if any_port else "/"):
            wrong.append(f"request to {request.url}")

    there = _shared.get(asyncio.get_running_loop())
    async with nullcontext(there) if there is not None else shared_browser() as browser:
        page = await browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            ignore_https_errors=True,
            http_credentials=_credentials(login),
        )
        page.on("request", check)
        page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        try:
            yield page, wrong
        finally:
            await page.close()


def _credentials(login: tuple[str, str] | None) -> HttpCredentials | None:
    return {"username": login[0], "password": login[1]} if login is not None else None


def _is_own(origin: str, url: str, end: str) -> bool:
    # A blob is made by the page itself.
    return url.startswith((f"{origin}{end}", f"blob:{origin}{end}", "data:"))

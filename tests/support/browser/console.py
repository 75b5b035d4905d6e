"""What tests of the console do: open its pages, fill in its forms, and run the lines it shows."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Locator, Page, expect

from tests.support.browser.page import HEIGHT, WIDTH, open_page

SCREENSHOTS: Final = Path(__file__).parents[3] / ".artifacts" / "screenshots"
TAKE_PICTURES: Final = "TAKE_SCREENSHOTS"
"""The environment variable that asks for pictures. Services refuse unknown LEADLINE_ variables."""
Theme = Literal["light", "dark"]
THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
WIDTHS: Final = (2000, 1600, 1024, 390, 360)
"""From wide to narrow: charts have to shrink each time."""
_BIN: Final = Path(sys.executable).parent
_ERROR_ANSWER: Final = "Failed to load resource: the server responded with a status of 4"


async def arrived(page: Page, title: str) -> None:
    """Wait until a page of the console is shown with live data."""
    await expect(page.get_by_role("heading", level=1)).to_have_text(title)
    await expect(page.get_by_role("status", name="Connection")).to_contain_text("Live")


@asynccontextmanager
async def console(
    url: str,
    path: str,
    title: str,
    *,
    refusals: bool = False,
    login: tuple[str, str] | None = None,
) -> AsyncIterator[Page]:
    """Open a page of the console at a service; fail if the browser reports anything wrong.

    A browser reports each answer of an error, too: `refusals` are expected. `login` is the name
    and the password that the browser gives when it is asked.
    """
    async with open_page(url, login=login) as (page, wrong):
        await page.goto(f"{url}/ui{path}")
        await arrived(page, title)
        yield page
        reported = [one for one in wrong if not (refusals and one.startswith(_ERROR_ANSWER))]
        assert reported == []


async def serious(page: Page) -> list[str]:
    """Return the serious violations that axe finds, each with the first element."""
    found = (await Axe().run(page)).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html']} {one['nodes'][0]['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


async def check_looks(page: Page, name: str) -> None:
    """Check the page that is shown in both themes and at all widths.

    axe finds nothing serious, and the page is not wider than the window. The pictures that are 1280
    pixels wide are those of the documentation.
    """
    await page.get_by_label("Theme").select_option("light")
    assert await serious(page) == [], f"{name}, light"
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.evaluate("window.scrollTo(0, 0)")
    await screenshot(page, f"{name}-1280")
    await page.get_by_label("Theme").select_option("dark")
    assert await serious(page) == [], f"{name}, dark"
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 1000})
        # Charts are drawn again a moment after the window has changed.
        fits = "width => document.documentElement.scrollWidth <= width"
        await page.wait_for_function(fits, arg=width)
        await screenshot(page, f"{name}-{width}", full_page=True)
    await page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


async def open_form(page: Page, button: str, title: str | None = None) -> Locator:
    """Press the button of an action, and return its dialog, which has this title."""
    await page.get_by_role("button", name=button, exact=True).click()
    form = page.get_by_role("dialog", name=title)
    await expect(form).to_be_visible()
    return form


async def dry_run(form: Locator) -> Locator:
    """Try the action of a form, and return what the server answered."""
    await form.get_by_role("button", name="Try (dry run)").click()
    result = form.get_by_role("group", name="Result of the dry run")
    await expect(result).to_contain_text("nothing was changed")
    return result


async def confirm(form: Locator, verb: str) -> None:
    """Send the action of a form after its confirmation."""
    await form.get_by_role("button", name=f"{verb} …", exact=True).click()
    yes = f"Yes, {verb[0].lower()}{verb[1:]}"
    await form.get_by_role("button", name=yes, exact=True).click()


async def done(form: Locator, verb: str) -> None:
    """Send the action of a form after its confirmation, and wait until it is done."""
    await confirm(form, verb)
    await expect(form.get_by_role("status")).to_contain_text(["Done"])


async def carry_out(form: Locator, verb: str) -> None:
    """Send the action of a form after its confirmation, wait until it is done, and close it."""
    await done(form, verb)
    await close(form)


async def close(form: Locator) -> None:
    """Close a dialog by its button."""
    await form.get_by_role("button", name="Close", exact=True).click()
    await expect(form).to_be_hidden()


async def line_of(form: Locator, name: str) -> str:
    """Return a line that a form shows: "curl line" or "command line"."""
    return await form.get_by_label(name, exact=True).inner_text()


async def run_line(form: Locator, name: str) -> str:
    """Run a line that a form shows, and return what it printed."""
    return await run(await line_of(form, name))


async def run(line: str) -> str:
    """Run a line of the console as a shell does, and return what it printed.

    Raises:
        AssertionError: it failed; the message has what it printed.

    """
    path = f"{_BIN}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_shell(
        line.replace("curl ", "curl --fail-with-body ", 1),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"PATH": path, "NO_PROXY": "*"},
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, f"{line}: {printed}"
    return printed


async def screenshot(page: Page, name: str, *, full_page: bool = False) -> None:
    """Keep a picture of the page for the documentation, if one is asked for.

    Without a graphics card a picture of a whole page takes longer than all other checks of it.
    """
    if os.environ.get(TAKE_PICTURES):
        await page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full_page)

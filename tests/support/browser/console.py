"""What tests of the console do on every page: arrive, look for problems, run the lines shown."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Locator, Page, expect

SCREENSHOTS = Path(".artifacts/screenshots")
_BIN = Path(sys.executable).parent


async def arrived(page: Page, title: str) -> None:
    """Wait until a page with this heading is shown, with the data of the cluster."""
    await expect(page.get_by_role("heading", level=1)).to_have_text(title)
    await expect(page.get_by_role("status", name="Connection")).to_contain_text("Live")


async def serious(page: Page) -> list[str]:
    """Return the serious violations that axe finds, each with the first element."""
    found = (await Axe().run(page)).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html']} {one['nodes'][0]['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


async def open_form(page: Page, button: str, title: str) -> Locator:
    """Press the button of an action, and return its dialog."""
    await page.get_by_role("button", name=button, exact=True).click()
    form = page.get_by_role("dialog", name=title)
    await expect(form).to_be_visible()
    return form


async def tried(form: Locator) -> Locator:
    """Make a dry run, and return its result."""
    await form.get_by_role("button", name="Try (dry run)").click()
    result = form.get_by_role("group", name="Result of the dry run")
    await expect(result).to_contain_text("nothing was changed")
    return result


async def confirm(form: Locator, verb: str) -> None:
    """Send the form, after its confirmation."""
    await form.get_by_role("button", name=f"{verb} …", exact=True).click()
    yes = f"Yes, {verb[0].lower()}{verb[1:]}"
    await form.get_by_role("button", name=yes, exact=True).click()


async def done(form: Locator, verb: str) -> None:
    """Send the form, and wait for success."""
    await confirm(form, verb)
    await expect(form.get_by_role("status")).to_contain_text(["Done"])


async def run_line(form: Locator, name: str) -> str:
    """Run the `curl line` or the `command line` that a form shows, and return what it printed."""
    line = await form.get_by_label(name, exact=True).inner_text()
    return await run(line.replace("curl ", "curl --fail-with-body ", 1))


async def run(line: str) -> str:
    """Run a line as a shell does.

    Raises:
        AssertionError: it failed; the message has what it printed.

    """
    path = f"{_BIN}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_shell(
        line,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PATH": path},
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, f"{line}\n{printed.decode()}"
    return printed.decode()


async def close(form: Locator) -> None:
    """Close a dialog by its button."""
    await form.get_by_role("button", name="Close", exact=True).click()
    await expect(form).to_be_hidden()


async def screenshot(page: Page, name: str) -> None:
    """Keep a picture of the page for the documentation, and for whoever looks at it."""
    await page.screenshot(path=SCREENSHOTS / f"{name}.png")

"""The analytics report in a real browser: light, dark and narrow, with nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import expect

from leadline_spark.jobs.analytics.report.page import render
from tests.support.browser.page import open_page
from tests.unit.spark.report_example import EVIL, eventful

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

_OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll('svg text.tick')].map(t => t.getBoundingClientRect());
  return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
    && a.top < b.bottom && b.top < a.bottom));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_report_shows_without_a_complaint(
    scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(eventful(), "Ours"), encoding="utf-8")
    async with open_page("file://") as (page, wrong):
        await page.emulate_media(color_scheme=scheme)
        await page.goto(file.as_uri())
        await page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)
        await expect(page.locator("h1")).to_have_text("Ours")
        await expect(page.locator("svg.drawing")).to_have_count(5)
        await expect(page.locator("#h-partitions ~ .scroll tbody th").first).to_have_text(
            f"{EVIL}-0"
        )
        assert not await page.evaluate(_OVERLAPS), "labels of axes stand apart"
        background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(246, 247, 249)") == (scheme == "light")
        assert wrong == []


async def test_a_narrow_page_scrolls_its_drawings_and_not_itself(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(eventful(), "Ours"), encoding="utf-8")
    async with open_page("file://") as (page, wrong):
        await page.set_viewport_size({"width": 400, "height": 800})
        await page.goto(file.as_uri())
        assert await page.evaluate("document.documentElement.scrollWidth") <= 400
        assert wrong == []

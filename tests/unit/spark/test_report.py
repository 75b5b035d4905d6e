"""The report without Spark: figures in words, axes, drawings, and the page as a whole."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from leadline_spark.jobs.analytics.report import charts, page, words
from leadline_spark.jobs.analytics.report.charts import LEFT, RIGHT, Bar, ChartRow, Period
from leadline_spark.jobs.analytics.report.data import ReportData
from leadline_spark.jobs.analytics.report.scales import LinearScale, TimeScale, nice_step
from tests.unit.spark.report_example import EVIL, SINCE, UNTIL, eventful, quiet

PERIOD = Period(SINCE, UNTIL)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "\u2013"),
        (0, "0 ms"),
        (999, "999 ms"),
        (4261, "4.26 s"),
        (59_970, "1 min"),
        (663_000, "11 min 3 s"),
        (3_600_000, "1 h"),
        (190_800_000, "2 d 5 h"),
    ],
)
def test_durations_have_the_units_that_fit(ms: float | None, text: str) -> None:
    assert words.duration(ms) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (812, "812 B"), (999.7, "1 kB"), (24_731_839, "24.7 MB"), (5e15, "5e+03 TB")],
)
def test_sizes_have_the_units_that_fit(number: float, text: str) -> None:
    assert words.size(number) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (1.0, "100 %"),
        (0.9807, "98.1 %"),
        (0.9993, "99.930 %"),
        (0.999_999_97, "99.999997 %"),
        (0, "0.0 %"),
    ],
)
def test_availability_shows_its_nines_and_never_100_of_less(part: float, text: str) -> None:
    assert words.share(part) == text


def test_availability_just_below_one_is_not_called_one() -> None:
    assert words.share(1 - 1e-12) == "99.999999 %"


@pytest.mark.parametrize("hours", [0.01, 0.5, 3, 30, 24 * 20, 24 * 800])
def test_time_axes_have_a_few_round_labels(hours: float) -> None:
    scale = TimeScale(SINCE, SINCE + round(hours * 3_600_000), 0, 800)
    ticks = list(scale.ticks())
    assert 2 <= len(ticks) <= 11
    xs = [x for x, _ in ticks]
    assert xs == sorted(xs)
    assert 0 <= xs[0] < xs[-1] <= 800
    assert re.search(r"\d [A-Z][a-z]{2}$", ticks[0][1]), "the first says the day"


@pytest.mark.parametrize("most", [0, 1, 3, 8, 41, 12_345])
def test_counts_have_whole_steps(most: int) -> None:
    scale = LinearScale(most, nice_step(most), 100, 0)
    ticks = [float(label.replace("\u2009", "")) for _, label in scale.ticks()]
    assert ticks[0] == 0
    assert ticks[-1] >= most
    assert all(tick == int(tick) for tick in ticks)
    assert 2 <= len(ticks) <= 7


def rectangles(drawn: str) -> list[dict[str, str]]:
    """Return the attributes of the rectangles of a drawing."""
    found = re.findall(r"<rect ([^>]*)>", drawn)
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', attributes)) for attributes in found]


def test_a_span_too_short_to_be_seen_is_still_drawn_inside() -> None:
    row = ChartRow("broker 1", [Bar(UNTIL, UNTIL, "state-failed", "down")])
    drawn = charts.timeline("k", "Title", "Words", PERIOD, [row])
    (bar,) = (r for r in rectangles(drawn) if r["class"] == "state-failed")
    assert float(bar["width"]) > 1
    assert float(bar["x"]) + float(bar["width"]) <= RIGHT


def test_columns_hang_down_in_the_same_unit() -> None:
    up, down = {"caught_up": [4, 0]}, {"failure": [0, 8]}
    drawn = charts.columns("k", "T", "W", PERIOD, "changes", up, down)
    heights = {one["class"]: float(one["height"]) for one in rectangles(drawn)}
    assert heights["cause-failure"] == pytest.approx(2 * heights["cause-caught_up"], abs=0.2)
    assert all(LEFT <= float(one["x"]) <= RIGHT for one in rectangles(drawn))


class _Page(HTMLParser):
    """Collects what the page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in {"meta", "link", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]


@pytest.mark.parametrize("data", [quiet(), eventful()], ids=["quiet", "eventful"])
def test_the_page_is_whole_and_needs_nothing_else(data: ReportData) -> None:
    html = page.render(data, "Ours")
    parsed = _Page()
    parsed.feed(html)
    assert parsed.open == []
    assert "script" not in parsed.tags
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html)
    links = [v for t, n, v in parsed.attributes if n in {"src", "href"}]
    assert links == ["data:,"]
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    assert html.count('role="img"') == html.count("<desc") >= 4
    ids = [value for _, name, value in parsed.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for reference in (v for _, n, v in parsed.attributes if n == "aria-labelledby"):
        assert set((reference or "").split()) <= set(ids)


def test_names_are_shown_as_they_are() -> None:
    html = page.render(eventful(), EVIL)
    assert EVIL not in html
    assert html.count("&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;&amp;amp;") >= 4


def test_every_class_that_is_drawn_has_its_colour() -> None:
    html = page.render(eventful(), "Ours")
    style = html.partition("<style>")[2].partition("</style>")[0]
    drawn = set(re.findall(r'class="(?:area |meter )?((?:wrong|state|cause|task|term)-\w+)"', html))
    assert len(drawn) >= 8
    assert [name for name in drawn if f".{name} " not in style] == []


def test_the_verdict_says_that_the_history_has_holes() -> None:
    data = eventful()
    assert "of the history in between" not in page.render(data, "Ours")
    period = {**data.summary["period"], "missing": 2}
    holed = replace(data, summary={**data.summary, "period": period})
    assert "2 entries of the history in between are missing" in page.render(holed, "Ours")


def test_the_verdict_says_the_worst() -> None:
    html = page.render(eventful(), "Ours")
    assert "1 unclean election may have lost records" in html
    assert "There was 1 gap without leader, the longest 60 ms, still open at the end." in html
    assert "No broker failure, no planned stop, no controller failover." in page.render(
        quiet(), "Ours"
    )

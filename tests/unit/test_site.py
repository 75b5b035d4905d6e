"""The documentation as a site: it is made without a warning, and needs nothing from elsewhere.

Sphinx itself reports a page in no table of contents, and links and anchors of pages that do not
exist; that it does is tested on a small tree of pages with these mistakes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import leadline_client
from tests.support.shared_folder import shared_folder

pytestmark = pytest.mark.slow  # Sphinx takes a minute for the site.

ROOT = Path(__file__).resolve().parents[2]
RESOURCES = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
METHODS = {"get", "post", "put", "patch", "delete"}
OPENAPI = sorted(path.name for path in (ROOT / "openapi").glob("*.json"))
_REMOTE = re.compile(r"(?:https?:)?//\S")
_CSS_SOURCE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)")


@dataclass
class Page(HTMLParser):
    """What a page of the site has: ids, links, and the files that it loads."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    resources: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.html = self.path.read_text(encoding="utf-8")
        self.feed(self.html)

    @property
    def text(self) -> str:
        """The text of the page, without its tags."""
        return unescape(re.sub(r"<[^>]+>", "", self.html))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        if tag in RESOURCES and RESOURCES[tag] in found:
            self.resources.add(found[RESOURCES[tag]])


def make(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Make a site as `make docs` does."""
    words = ("-q", "-W", "--keep-going", "-b", "html", "-c", str(ROOT / "scripts/documentation"))
    command = [sys.executable, "-m", "sphinx", *words, str(source), str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    """The pages of the site by their paths, as in `docs/spark.html`."""

    def fill(folder: Path) -> None:
        made = make(ROOT, folder)
        assert made.returncode == 0, made.stderr
        assert made.stderr == ""

    folder = shared_folder(tmp_path_factory, "site", fill)
    paths = [path for path in folder.rglob("*.html") if "_static" not in path.parts]
    return {path.relative_to(folder).as_posix(): Page(path) for path in paths}


def folder_of(site: dict[str, Page]) -> Path:
    return site["index.html"].path.parent


def test_every_page_of_docs_is_in_the_site(site: dict[str, Page]) -> None:
    pages = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {page.as_posix() for page in pages} <= site.keys()
    assert {"README.html", "ARCHITECTURE.html", "examples/README.html"} <= site.keys()


def test_every_link_within_the_site_leads_somewhere(site: dict[str, Page]) -> None:
    folder = folder_of(site)
    broken = [
        f"{name}: {link}"
        for name, page in site.items()
        for link in page.links
        if not urlsplit(link).scheme and not leads_somewhere(link, page, site, folder)
    ]
    assert broken == []


def leads_somewhere(link: str, page: Page, site: dict[str, Page], folder: Path) -> bool:
    """Whether a link within the site names a file that exists, and an element of it."""
    path, _, anchor = unquote(link).partition("#")
    target = (page.path.parent / path).resolve() if path else page.path
    if not target.exists():
        return False
    if not anchor or target.suffix != ".html":
        return True
    return anchor in site[target.relative_to(folder.resolve()).as_posix()].ids


def test_links_to_elsewhere_are_addresses(site: dict[str, Page]) -> None:
    outside = {link for page in site.values() for link in page.links if urlsplit(link).scheme}
    strange = [link for link in outside if not re.fullmatch(r"https?://[\w.:-]+(/\S*)?", link)]
    assert outside
    assert strange == []


def test_the_site_loads_nothing_from_elsewhere(site: dict[str, Page]) -> None:
    loaded = {one for page in site.values() for one in page.resources}
    assert any(one.endswith(".css") or ".css?" in one for one in loaded)
    assert [one for one in loaded if _REMOTE.match(one)] == []
    styles = list(folder_of(site).rglob("*.css"))
    assert styles
    remote = {str(path): _CSS_SOURCE.findall(path.read_text(encoding="utf-8")) for path in styles}
    assert {path: found for path, found in remote.items() if found} == {}


def test_every_public_name_of_the_client_is_in_its_reference(site: dict[str, Page]) -> None:
    shown = set().union(*(page.ids for name, page in site.items() if "docs/python/" in name))
    names = {name for name in dir(leadline_client) if name[0].isupper()}
    assert "Producer" in names
    assert {name for name in names if f"leadline_client.{name}" not in shown} == set()
    assert "leadline_client.Producer.send" in shown


def test_the_reference_shows_results_and_not_the_flows(
    site: dict[str, Page],
) -> None:
    text = site["docs/python/clients.html"].text
    assert "list_topics() → tuple[TopicInfo, …]" in text.replace("...", "…")
    assert "→ Generator[" not in text


@pytest.mark.parametrize("document", OPENAPI)
def test_every_operation_is_in_the_reference(site: dict[str, Page], document: str) -> None:
    text = site[f"docs/http/{document.removesuffix('.json')}.html"].text
    read = json.loads((ROOT / "openapi" / document).read_text(encoding="utf-8"))
    operations = [
        f"{method.upper()} {path}"
        for path, item in read.get("paths", {}).items()
        for method in METHODS & item.keys()
    ]
    messages = [one["title"] for one in read["components"].get("messages", {}).values()]
    assert operations or messages
    assert [one for one in [*operations, *messages] if one not in text] == []


def test_pages_with_mistakes_are_refused(tmp_path: Path) -> None:
    pages = {
        "docs/README.md": "# Pages\n\n<!-- contents -->\n\n- [One](one.md): listed.\n",
        "docs/one.md": "# One\n\n[a](two.md#nowhere) [b](gone.md) [c](#none)\n",
        "docs/two.md": "# Two\n",
    }
    for name, text in pages.items():
        path = tmp_path / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    made = make(tmp_path / "pages", tmp_path / "site")

    assert made.returncode != 0
    for mistake in ("nowhere", "gone.md", "none", "two.md: WARNING: document isn't included"):
        assert mistake in made.stderr, made.stderr

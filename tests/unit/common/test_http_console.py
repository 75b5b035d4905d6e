"""The files of the web console: what a service serves, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

import leadline_common
from leadline_cli.problems import Problem
from leadline_common.http.app import create_app
from leadline_common.http.console import add_console

STATIC = Path(leadline_common.__file__).parent / "console" / "static"
FILES = sorted(str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.is_file())
SCRIPTS = [name for name in FILES if name.endswith(".js")]
IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*["']([^"'\s]+)["']""")
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}


def client(root: str = "") -> httpx.AsyncClient:
    app = create_app(title="Leadline broker", version="1.2.3", description="-")
    add_console(app, "broker")
    transport = httpx.ASGITransport(app=app, root_path=root)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_the_address_alone_leads_to_the_console() -> None:
    async with client() as http:
        answer = await http.get("/")
        assert (answer.status_code, answer.headers["location"]) == (307, "/ui")
        assert '<a href="/ui">Console</a>' in (await http.get("/docs")).text


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/", "/ui/topics", "/ui/topics/a.b", "/ui/no/such/page"]
)
async def test_every_path_below_ui_is_the_page_with_its_service_and_release(path: str) -> None:
    async with client() as http:
        answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert '<meta name="leadline-service" content="broker">' in answer.text
    assert '<meta name="leadline-release" content="1.2.3">' in answer.text
    assert "{{" not in answer.text


async def test_behind_a_proxy_the_page_refers_to_paths_below_its_own() -> None:
    async with client("/east") as http:
        page = (await http.get("/east/ui/topics")).text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(addresses) >= 5
    assert all(address.startswith("/east/") for address in addresses), addresses


@pytest.mark.parametrize("path", ["/ui", "/ui/static/main.js"])
async def test_the_policy_allows_this_origin_alone_and_no_code_within_pages(path: str) -> None:
    async with client() as http:
        policy = (await http.get(path)).headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "script-src" not in policy


def test_the_page_has_no_code_of_its_own() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>[^<]+</script>|<style|\son\w+=|\sstyle=", page) == []


@pytest.mark.parametrize("name", FILES)
async def test_each_file_has_its_type_and_an_etag_that_answers_304(name: str) -> None:
    async with client() as http:
        answer = await http.get(f"/ui/static/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == TYPES[Path(name).suffix]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        known = {"If-None-Match": answer.headers["etag"]}
        again = await http.get(f"/ui/static/{name}", headers=known)
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/ui/static/none.js",
        "/ui/static/",
        "/ui/static",
        "/ui/static/../../http/console.py",
        "/ui/static/%2e%2e/%2e%2e/http/console.py",
        "/ui/static/..%2f..%2fhttp%2fconsole.py",
        "/ui/static//etc/passwd",
        "/ui/static/%2fetc%2fpasswd",
    ],
)
async def test_nothing_but_the_files_is_served(path: str) -> None:
    async with client() as http:
        answer = await http.get(path)
    assert "create_app" not in answer.text
    assert "root:" not in answer.text
    if answer.status_code == 200:  # the client has made it the path of a page
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
    else:
        assert (answer.status_code, answer.json()["error_code"]) == (404, 404)


async def test_files_are_only_read() -> None:
    async with client() as http:
        for method in ("POST", "PUT", "DELETE"):
            answer = await http.request(method, "/ui/static/main.js")
            assert answer.status_code == 405, method
            assert (await http.request(method, "/ui/topics")).status_code == 405, method


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_import_files_that_are_there(name: str) -> None:
    code = (STATIC / name).read_text(encoding="utf-8")
    for wanted in IMPORT.findall(code):
        assert wanted.startswith("."), f"{name} imports {wanted}"
        assert ((STATIC / name).parent / wanted).resolve().is_file(), f"{name} imports {wanted}"


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not name.startswith("vendor/")])
def test_own_scripts_are_short_and_make_no_markup_or_code_of_text(name: str) -> None:
    code = (STATIC / name).read_text(encoding="utf-8")
    assert len(code.splitlines()) < 300
    assert code.startswith("//"), "a module begins with what it is for"
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function", code) == []


def test_findings_have_the_ids_of_the_command() -> None:
    code = (STATIC / "store/findings.js").read_text(encoding="utf-8")
    ids = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', code))
    assert len(ids) >= 9
    assert ids <= {problem.value for problem in Problem}


def test_the_manifest_names_each_vendored_file_with_its_licence() -> None:
    manifest = json.loads((STATIC / "vendor/manifest.json").read_text(encoding="utf-8"))
    named = {name for package in manifest["packages"] for name in package["files"].values()}
    assert named | {"manifest.json"} == {path.name for path in (STATIC / "vendor").iterdir()}
    for package in manifest["packages"]:
        assert any(name.endswith(".LICENSE.txt") for name in package["files"].values()), package

"""The web console at /ui: files that a browser runs as they are, from this package alone.

Every path below /ui that is not a file shows the same page, whose script shows what the path
names. The files are modules without a build step (`leadline_common/console/static`); those of
other projects are in `vendor/`, whose manifest has their versions and licences.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from leadline_common.http.app import ServiceApp
from leadline_common.http.errors import error_response, no_route

Service = Literal["broker", "controller"]

CONSOLE: Final = "console"
"""The operation of all these routes in the table of rights."""
CONSOLE_PATH: Final = "/ui"
FILES_PATH: Final = "/ui/static"
_FILES: Final = Path(str(files("leadline_common"))) / "console" / "static"
_PAGE: Final = "index.html"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Stated here, because the types that Python knows depend on the machine."""
_SECURITY: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    # Browsers keep the files and ask each time whether they have changed: a release changes them.
    "Cache-Control": "no-cache",
}


def add_console(app: ServiceApp, service: Service) -> None:
    """Add the console to a service; / redirects to it, and the documentation links it."""

    async def page(request: Request) -> Response:
        if request.path_params.get("path", "").startswith("static/"):
            return error_response(no_route(request.url.path))
        root = request.scope.get("root_path", "").rstrip("/")
        body = _page().replace("{{root}}", escape(root)).replace("{{service}}", service)
        body = body.replace("{{release}}", escape(app.version))
        return Response(body, media_type="text/html", headers=_SECURITY)

    app.mount(FILES_PATH, ConsoleFiles(), name=CONSOLE)
    for path in (CONSOLE_PATH, f"{CONSOLE_PATH}/{{path:path}}"):
        app.add_route(path, page, include_in_schema=False, name=CONSOLE)
    app.home = CONSOLE_PATH
    links = {"Console": CONSOLE_PATH, **app.page_links}
    app.page_links.clear()
    app.page_links.update(links)


class ConsoleFiles:
    """The ASGI application of the files, with their types, ETags and the security policy."""

    def __init__(self) -> None:
        self._files = StaticFiles(directory=_FILES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one file."""
        suffix = Path(scope["path"]).suffix

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (200, 206, 304):
                headers = MutableHeaders(scope=message)
                headers.update(_SECURITY)
                if message["status"] != 304 and suffix in _TYPES:
                    headers["Content-Type"] = _TYPES[suffix]
            await send(message)

        await self._files(scope, receive, send_with_headers)


@cache
def _page() -> str:
    # Read at the first request, because most processes never serve the page.
    return (_FILES / _PAGE).read_text(encoding="utf-8")

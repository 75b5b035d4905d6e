"""Swagger UI at /docs and ReDoc at /redoc, with all assets served by the service itself.

Each page begins with links: to the other pages of the service, and to the pages of the other
services of the cluster (`link_services`). Those lead to `/docs/of/{service}`, which redirects to a
process that is live at that moment.

The assets come with the package fastapi-offline (Swagger UI 5, which OpenAPI 3.1 needs, and
ReDoc). ReDoc's script refers to one image on a CDN, which is replaced when the script is
served. The pages have a content security policy that forbids any other origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from leadline_client.errors import NotFound
from leadline_common.http.errors import error_response

if TYPE_CHECKING:
    from fastapi import FastAPI

Service = Literal["controller", "broker", "coordinator"]
FindService = Callable[[Service], Awaitable[str | None]]
"""Returns the URL of the pages of a service, or of a process that knows it; None if unknown."""

ASSETS_PATH = "/docs/assets"
_ASSETS = Path(str(files("fastapi_offline"))) / "static"
_REDOC_SCRIPT = "redoc.standalone.js"
_REMOTE_LOGO = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; worker-src blob:; font-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""No other page may frame these: Swagger UI sends requests, with the password of the user."""

_SWAGGER = {
    "validatorUrl": None,  # The default sends the document to another server.
    "displayRequestDuration": True,
    "defaultModelsExpandDepth": 0,  # Folded, because it is longer than the list of operations.
    "docExpansion": "none",  # A list of tags, because a service has up to 60 operations.
    "filter": True,
}
DOCUMENTATION: Final = "documentation"
"""The operation of all these routes in the table of rights."""
PAGES: Final = {"Swagger UI": "/docs", "ReDoc": "/redoc", "OpenAPI": "/openapi.json"}
_FAVICON_NAME: Final = "leadline.svg"
_FAVICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="3" fill="#1d4e79"/>'
    '<path d="M5 3v9h7" fill="none" stroke="#fff" stroke-width="2.5"/></svg>'
)
_BODY: Final = b"<body>"
_LINKS_STYLE: Final = "font: 14px sans-serif; padding: 8px 20px; background: #eef2f6"


def add_docs(app: FastAPI, links: Mapping[str, str], home: Callable[[], str]) -> None:
    """Add both pages and their assets to an application; / redirects to the path `home()`.

    Each page begins with `links`, paths by name, as they are when it is requested.
    """

    def add_page(path: str, render: Callable[..., Response], **assets: str) -> None:
        async def page(request: Request) -> Response:
            root = request.scope.get("root_path", "").rstrip("/")
            urls = {option: f"{root}{ASSETS_PATH}/{name}" for option, name in assets.items()}
            found = render(openapi_url=f"{root}{app.openapi_url}", title=app.title, **urls)
            shown = _links(links, root).encode()
            body = bytes(found.body).replace(_BODY, _BODY + shown, 1)
            return Response(
                body, media_type="text/html", headers={"Content-Security-Policy": _POLICY}
            )

        app.add_route(path, page, include_in_schema=False, name=DOCUMENTATION)

    async def redirect(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        return RedirectResponse(f"{root}{home()}")

    app.add_route("/", redirect, include_in_schema=False, name=DOCUMENTATION)
    add_page(
        "/docs",
        partial(get_swagger_ui_html, swagger_ui_parameters=_SWAGGER),
        swagger_js_url="swagger-ui-bundle.js",
        swagger_css_url="swagger-ui.css",
        swagger_favicon_url=_FAVICON_NAME,
    )
    add_page(
        "/redoc",
        partial(get_redoc_html, with_google_fonts=False),
        redoc_js_url=_REDOC_SCRIPT,
        redoc_favicon_url=_FAVICON_NAME,
    )
    app.add_route(
        f"{ASSETS_PATH}/{_REDOC_SCRIPT}", _redoc_script, include_in_schema=False, name=DOCUMENTATION
    )
    for path in (f"{ASSETS_PATH}/{_FAVICON_NAME}", "/favicon.ico"):
        app.add_route(path, _favicon, include_in_schema=False, name=DOCUMENTATION)
    app.mount(ASSETS_PATH, StaticFiles(directory=_ASSETS), name=DOCUMENTATION)


def link_services(app: FastAPI, links: dict[str, str], find: FindService) -> None:
    """Add links to the pages of the cluster's services, which `find` finds at each request."""

    async def redirect(request: Request) -> Response:
        name: Service = request.path_params["service"]
        if name in get_args(Service) and (url := await find(name)) is not None:
            return RedirectResponse(url)
        return error_response(NotFound(f"this process knows no live {name}"))

    for name in get_args(Service):
        links[name] = f"/docs/of/{name}"
    app.add_route("/docs/of/{service}", redirect, include_in_schema=False, name=DOCUMENTATION)


def _links(links: Mapping[str, str], root: str) -> str:
    items = " · ".join(
        f'<a href="{escape(root + path)}">{escape(name)}</a>' for name, path in links.items()
    )
    return f'<nav class="leadline" style="{_LINKS_STYLE}">Leadline: {items}</nav>'


async def _favicon(request: Request) -> Response:
    del request
    return Response(_FAVICON, media_type="image/svg+xml")


async def _redoc_script(request: Request) -> Response:
    del request
    return Response(_redoc_code(), media_type="text/javascript")


@cache
def _redoc_code() -> bytes:
    # Read at the first request, because most processes never serve the page.
    code = (_ASSETS / _REDOC_SCRIPT).read_bytes()
    return code.replace(_REMOTE_LOGO, f"{ASSETS_PATH}/{_FAVICON_NAME}".encode())

"""Swagger UI at /docs and ReDoc at /redoc, with all assets served by the service itself.

The assets come with the package fastapi-offline (Swagger UI 5, which OpenAPI 3.1 needs, and
ReDoc). ReDoc's script refers to one image on a CDN, which is replaced when the script is
served. The pages have a content security policy that forbids any other origin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from fastapi import FastAPI

ASSETS_PATH = "/docs/assets"
_ASSETS = Path(str(files("fastapi_offline"))) / "static"
_REDOC_SCRIPT = "redoc.standalone.js"
_REMOTE_LOGO = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; worker-src blob:; font-src 'self' data:"
)

_SWAGGER = {
    "validatorUrl": None,  # The default sends the document to another server.
    "displayRequestDuration": True,
    "defaultModelsExpandDepth": 0,  # Folded, because it is longer than the list of operations.
}


def add_docs(app: FastAPI) -> None:
    """Add both pages and their assets to an application; / redirects to Swagger UI."""

    def add_page(path: str, render: Callable[..., Response], **assets: str) -> None:
        async def page(request: Request) -> Response:
            root = request.scope.get("root_path", "").rstrip("/")
            urls = {option: f"{root}{ASSETS_PATH}/{name}" for option, name in assets.items()}
            found = render(openapi_url=f"{root}{app.openapi_url}", title=app.title, **urls)
            found.headers["Content-Security-Policy"] = _POLICY
            return found

        app.add_route(path, page, include_in_schema=False)

    async def redirect(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        return RedirectResponse(f"{root}/docs")

    app.add_route("/", redirect, include_in_schema=False)
    add_page(
        "/docs",
        partial(get_swagger_ui_html, swagger_ui_parameters=_SWAGGER),
        swagger_js_url="swagger-ui-bundle.js",
        swagger_css_url="swagger-ui.css",
        swagger_favicon_url="favicon.png",
    )
    add_page(
        "/redoc",
        partial(get_redoc_html, with_google_fonts=False),
        redoc_js_url=_REDOC_SCRIPT,
        redoc_favicon_url="favicon.png",
    )
    app.add_route(f"{ASSETS_PATH}/{_REDOC_SCRIPT}", _redoc_script, include_in_schema=False)
    app.mount(ASSETS_PATH, StaticFiles(directory=_ASSETS), name="docs-assets")


async def _redoc_script(request: Request) -> Response:
    del request
    return Response(_redoc_code(), media_type="text/javascript")


@cache
def _redoc_code() -> bytes:
    # Read at the first request, because most processes never serve the page.
    code = (_ASSETS / _REDOC_SCRIPT).read_bytes()
    return code.replace(_REMOTE_LOGO, f"{ASSETS_PATH}/favicon.png".encode())

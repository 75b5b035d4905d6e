"""Swagger UI at /docs and ReDoc at /redoc, with all assets served by the service itself.

The assets come with the package fastapi-offline (Swagger UI 5, which OpenAPI 3.1 needs, and
ReDoc). ReDoc's script refers to one image on a CDN, which is replaced when the script is
served. The pages have a content security policy that forbids any other origin.
"""

from __future__ import annotations

from functools import cache
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
_REDOC_SCRIPT = f"{ASSETS_PATH}/redoc.standalone.js"
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

    async def swagger(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        page = get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=app.title,
            swagger_js_url=f"{root}{ASSETS_PATH}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{ASSETS_PATH}/swagger-ui.css",
            swagger_favicon_url=f"{root}{ASSETS_PATH}/favicon.png",
            swagger_ui_parameters=_SWAGGER,
        )
        page.headers["Content-Security-Policy"] = _POLICY
        return page

    async def redoc(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        page = get_redoc_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=app.title,
            redoc_js_url=f"{root}{_REDOC_SCRIPT}",
            redoc_favicon_url=f"{root}{ASSETS_PATH}/favicon.png",
            with_google_fonts=False,
        )
        page.headers["Content-Security-Policy"] = _POLICY
        return page

    async def redirect(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        return RedirectResponse(f"{root}/docs")

    app.add_route("/", redirect, include_in_schema=False)
    app.add_route("/docs", swagger, include_in_schema=False)
    app.add_route("/redoc", redoc, include_in_schema=False)
    app.add_route(_REDOC_SCRIPT, _redoc_script, include_in_schema=False)
    app.mount(ASSETS_PATH, StaticFiles(directory=_ASSETS), name="docs-assets")


async def _redoc_script(request: Request) -> Response:
    del request
    return Response(_redoc_code(), media_type="text/javascript")


@cache
def _redoc_code() -> bytes:
    # Read at the first request, because most processes never serve the page.
    code = (_ASSETS / "redoc.standalone.js").read_bytes()
    return code.replace(_REMOTE_LOGO, f"{ASSETS_PATH}/favicon.png".encode())

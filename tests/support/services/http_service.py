"""Running an application for real, on a free port of 127.0.0.1, within a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from leadline_common.http.listeners import bind

KEEP_ALIVE_S: Final = 600
"""As the services have it. With uvicorn's 5 s, which are httpx's, both ends may give up at once."""


@asynccontextmanager
async def running(app: ASGIApp) -> AsyncIterator[str]:
    """Serve `app` while the body of the `async with` statement runs, which gets its URL."""
    listener = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    server = uvicorn.Server(config)
    # The coroutine within serve() that leaves signal handlers as pytest has them.
    task = asyncio.create_task(server._serve([listener.socket]))
    try:
        yield listener.url
    finally:
        server.should_exit = True
        await task

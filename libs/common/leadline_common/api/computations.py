"""Refusing a large question before it is read where its answer could not be computed.

Checking a body of tens of kilobytes takes longer than refusing it, and happens on the event loop.
"""

from __future__ import annotations

from typing import Final

from fastapi import Depends, FastAPI, Request

from leadline_common.computing import Computer

LARGE_BODY_BYTES: Final = 16 * 1024
"""A larger question takes long to read, so it is refused before that."""


def provide_computer(app: FastAPI, computer: Computer) -> None:
    """Let `ROOM_TO_COMPUTE` ask this one."""
    app.state.computer = computer


async def _require_room(request: Request) -> None:
    """Refuse a large question while the application's `Computer` has no room for one.

    Raises:
        ComputationsBusy: there is none.

    """
    if int(request.headers.get("content-length", "0")) > LARGE_BODY_BYTES:
        computer: Computer = request.app.state.computer
        computer.require_room()


ROOM_TO_COMPUTE: Final = (Depends(_require_room),)
"""The `dependencies` of a route whose answer a `Computer` computes."""

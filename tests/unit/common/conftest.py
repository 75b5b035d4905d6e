"""The event loops of the tests in this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run modules that set SERVICES_LOOP on the loop of the services: its transports differ."""
    module = getattr(item, "module", None)
    if getattr(module, "SERVICES_LOOP", False):
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}

"""A stranger asks every listener of every service for everything that the documents name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from leadline_common.identity import Kind
from tests.integration.secure.world import World

pytestmark = pytest.mark.asyncio(loop_scope="package")

OPENAPI = Path(__file__).resolve().parents[3] / "openapi"
PARAMETER = re.compile(r"\{[^}]*\}")
HEALTH = {("GET", "/healthz"), ("GET", "/readyz")}
PAGES = ("/docs", "/redoc", "/openapi.json", "/asyncapi.json", "/", "/metrics")
ANSWERS = ({"alive": True}, {"ready": True, "state": "ready", "reasons": []})
LEAST = 10
"""A service has more operations: a document that was not read would show none."""


def operations(*documents: str) -> Iterator[tuple[str, str]]:
    """Yield method and path of all operations in documents, and of the pages beside them."""
    for name in documents:
        for path, methods in json.loads((OPENAPI / name).read_text())["paths"].items():
            for method in methods:
                yield method.upper(), PARAMETER.sub("1", path)
    yield from (("GET", page) for page in PAGES)


def internal_documents(kind: Kind) -> list[str]:
    return [path.name for path in OPENAPI.glob(f"{kind}-internal.json")]


async def test_public_listeners_tell_a_stranger_nothing_but_their_health(world: World) -> None:
    async with httpx.AsyncClient(verify=world.trusted, trust_env=False, timeout=30) as stranger:
        for service in world.services:
            named = (f"{service.kind}.json", *internal_documents(service.kind))
            asked = list(operations(*named))
            assert len(asked) > LEAST
            found = set()
            for method, path in asked:
                answer = await stranger.request(method, world.url(service) + path)
                if answer.status_code not in (401, 404):
                    found.add((method, path))
                    assert answer.json() in ANSWERS, answer.text
            assert found == HEALTH, service


async def test_internal_listeners_do_not_even_speak_with_a_stranger(world: World) -> None:
    kinds: tuple[Kind, ...] = ("broker", "controller", "coordinator")
    async with httpx.AsyncClient(verify=world.trusted, trust_env=False, timeout=30) as stranger:
        for kind in kinds:
            url = world.cluster.internal_url(f"{kind}-1")
            with pytest.raises(httpx.TransportError):
                await stranger.get(f"{url}/healthz")
            plain = url.replace("https://", "http://")
            with pytest.raises(httpx.TransportError):
                await stranger.get(f"{plain}/healthz")

"""One secure cluster for all tests of this directory."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from leadline_cli.authorities import PUBLIC
from leadline_cli.certificates import Authority
from tests.integration.secure.world import World, bearer, in_sync
from tests.support.issuer import AUDIENCE, TestIssuer
from tests.support.services.cluster import CALM, Cluster, wait_until


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    issuer = TestIssuer()
    issuer.add_rsa("first")
    async with issuer.serving(), _cluster(tmp_path_factory.mktemp("secure"), issuer) as cluster:
        successor = Authority.new(name_text=PUBLIC)
        trusted = ssl.create_default_context(cafile=str(cluster.credentials.public_authority))
        trusted.load_verify_locations(cadata=successor.certificate_pem.decode())
        shown = bearer(cluster.credentials)
        async with httpx.AsyncClient(
            verify=trusted, trust_env=False, timeout=30, headers=shown
        ) as http:
            made = World(cluster, http, successor, trusted, issuer)
            url = cluster.url("broker-1")
            topic = {"name": "t", "replica_assignment": {"0": [1, 2], "1": [2, 1]}}
            (await http.post(f"{url}/v1/topics", json=topic)).raise_for_status()
            await wait_until(lambda: in_sync(made), "both brokers are in sync")
            yield made


def _cluster(directory: Path, issuer: TestIssuer) -> Cluster:
    settings = {
        **CALM,
        "min.insync.replicas": "2",
        "oidc.issuer": issuer.url,
        "oidc.audience": AUDIENCE,
    }
    return Cluster(
        directory, brokers=2, controllers=2, coordinators=2, settings=settings, secure=True
    )

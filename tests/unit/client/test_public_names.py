"""What `import leadline_client` offers, and how producers and consumers are made."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import leadline_client
from leadline_client import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    Client,
    Consumer,
    Producer,
    RetryPolicy,
)
from leadline_client.stdlib_transport import StdlibTransport
from leadline_client.transport import Request, Response
from tests.unit.client.standin import StandInCluster

FOLDER = Path(leadline_client.__file__).parent


def stub_names() -> set[str]:
    tree = ast.parse((FOLDER / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [one for one in tree.body if isinstance(one, ast.ImportFrom)]
    return {f"{one.module}:{alias.name}" for one in imports for alias in one.names}


def test_defect_21_every_name_can_be_imported_and_type_checkers_see_the_same() -> None:
    exports: dict[str, list[str]] = vars(leadline_client)["_EXPORTS"]
    found = {f"leadline_client.{home}:{name}" for home, names in exports.items() for name in names}
    assert found == stub_names()
    for name in (name for names in exports.values() for name in names):
        assert getattr(leadline_client, name).__name__ == name
        assert name in dir(leadline_client)
    missing = "Nothing"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(leadline_client, missing)


def test_the_package_imports_nothing_before_a_name_is_used() -> None:
    code = "import sys, leadline_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("leadline_client.")}
    assert loaded == {"leadline_client.lazy_exports"}


async def test_defect_21_asynchronous_classes_take_addresses_or_a_client(
    cluster: StandInCluster,
) -> None:
    async with AsyncProducer(cluster.bootstrap) as producer:
        await (await producer.send("t", b"one", partition=0))
    async with AsyncClient(cluster.bootstrap) as client:
        async with AsyncProducer(client) as producer:
            await (await producer.send("t", b"two", partition=0))
        async with AsyncConsumer(client) as consumer:
            await consumer.assign([("t", 0)])
            assert (await consumer.poll(5))[0].record.value == b"one"
        assert len(await client.brokers()) == 3, "the client is still open"
    async with AsyncConsumer(cluster.bootstrap[0]) as consumer:
        await consumer.assign([("t", 0)], 1)
        assert (await consumer.poll(5))[0].record.value == b"two"


def test_defect_21_blocking_classes_take_addresses_or_a_client(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=5)) as client:
        with Producer(client) as producer:
            producer.send("t", b"one", partition=0).result()
        with Consumer(client) as consumer:
            consumer.assign([("t", 0)])
            assert consumer.poll(5)[0].record.value == b"one"
        assert len(client.brokers()) == 3
    with Consumer(cluster.bootstrap[0]) as consumer:
        consumer.assign([("t", 0)])
        assert consumer.poll(5)[0].record.value == b"one"


class Counting(StdlibTransport):
    """The transport of an application, for instance with a token."""

    sent = 0

    def send(self, request: Request) -> Response:
        self.sent += 1
        return super().send(request)


def test_a_producer_uses_the_transport_that_its_client_was_given(cluster: StandInCluster) -> None:
    transport = Counting()
    with Client(cluster.bootstrap, transport=transport) as client:
        with Producer(client) as producer:
            producer.send("t", b"one", partition=0).result()
        assert transport.sent > 1


async def test_blocking_and_asynchronous_classes_are_not_mixed(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap) as blocking, pytest.raises(TypeError, match="AsyncClient"):
        AsyncProducer(blocking)  # type: ignore[arg-type] # the mistake of a user without a checker
    async with AsyncClient(cluster.bootstrap) as client:
        with pytest.raises(TypeError, match="needs a Client"):
            Producer(client)  # type: ignore[arg-type] # the mistake of a user without a checker


def public_members(named: object) -> list[tuple[str, object]]:
    """The members of a class that belong to its interface, with those of its bases."""
    if not isinstance(named, type) or issubclass(named, Exception):
        return []
    return [(name, getattr(named, name)) for name in dir(named) if not name.startswith("_")]


def test_every_public_name_and_method_has_a_docstring() -> None:
    exports: dict[str, list[str]] = vars(leadline_client)["_EXPORTS"]
    without = []
    for name in (name for names in exports.values() for name in names):
        found = getattr(leadline_client, name)
        described = [("", found), *public_members(found)]
        without += [
            f"{name}.{member}"
            for member, one in described
            if (callable(one) or isinstance(one, property)) and len((one.__doc__ or "").split()) < 3
        ]
    assert without == []

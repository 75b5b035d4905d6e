"""The two clients: `Client` blocks, `AsyncClient` awaits.

Both run the flows of `ClientCore`. Each of their methods is made from one flow, so
code and docstrings exist once.

    with Client("http://127.0.0.1:8081") as client:
        client.create_topic(NewTopic("lines", partitions=6, replication_factor=3))
        client.produce("lines", 0, [OutgoingRecord(b"hello")])
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Concatenate, ParamSpec, Self, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from leadline_client import administration, groups
from leadline_client.bootstrap import base_urls
from leadline_client.core import ClientCore
from leadline_client.errors import CoordinatorNotAvailable, InvalidRequest
from leadline_client.extras import installed
from leadline_client.flows import Flow, drive, drive_async
from leadline_client.groups import GroupMetadata, PartitionPositionMap
from leadline_client.retry import RetryPolicy
from leadline_client.security import Authenticator, Security
from leadline_client.stdlib_transport import StdlibTransport
from leadline_client.threaded_transport import ThreadedTransport
from leadline_client.tracing import operation_span, traced, traced_async
from leadline_client.transport import CLOSED, AsyncTransport, Transport

P = ParamSpec("P")
T = TypeVar("T")
AsyncSource: TypeAlias = "AsyncClient | str | Sequence[str]"
"""What `AsyncProducer` and `AsyncConsumer` are made from: a client, or addresses of brokers."""

BlockingSource: TypeAlias = "Client | str | Sequence[str]"
"""What `Producer` and `Consumer` are made from: a client, or addresses of brokers."""


def _core(bootstrap: str | Sequence[str], policy: RetryPolicy | None) -> ClientCore:
    return ClientCore(
        base_urls(bootstrap), policy or RetryPolicy(), clock=time.monotonic, random=random.random
    )


def _async_transport(authenticator: Authenticator) -> AsyncTransport:
    """Return the transport of the extra `http`, or one that needs the standard library alone."""
    if installed("httptools", "aiohappyeyeballs"):
        library = import_module("leadline_client.http_transport")
        found: AsyncTransport = library.AsyncHttpTransport(authenticator)
        return found
    return ThreadedTransport(StdlibTransport(authenticator), owned=True)


def async_client(source: AsyncSource, security: Security | None = None) -> tuple[AsyncClient, bool]:
    """Return the client that a producer or consumer uses, and whether it has to close it."""
    if isinstance(source, AsyncClient):
        _refuse_twice(security)
        return source, False
    if isinstance(source, Client):
        raise TypeError("an asynchronous producer or consumer needs an AsyncClient, not a Client")
    return AsyncClient(source, security=security), True


def _refuse_twice(security: Security | None) -> None:
    if security is not None:
        raise TypeError("give `security` to the client that the producer or consumer is made from")


def async_client_of(source: BlockingSource, security: Security | None = None) -> AsyncClient:
    """Return a new asynchronous client of the same cluster, for the loop of a blocking class.

    It has the addresses, the retry policy and the security of a client, and shares a transport
    that was given to it.
    """
    if isinstance(source, AsyncClient):
        raise TypeError("a blocking producer or consumer needs a Client, not an AsyncClient")
    if not isinstance(source, Client):
        return AsyncClient(source, security=security)
    _refuse_twice(security)
    given = source.given_transport
    shared = None if given is None else ThreadedTransport(given, owned=False)
    return AsyncClient(
        source.core.bootstrap,
        policy=source.core.policy,
        transport=shared,
        security=source.authenticator.security,
    )


def _blocking(
    operation: Callable[Concatenate[ClientCore, P], Flow[T]],
) -> Callable[Concatenate[Client, P], T]:
    @wraps(operation)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with operation_span(operation.__name__):
            return client.run(operation(client.core, *args, **kwargs))

    return method


def _awaiting(
    operation: Callable[Concatenate[ClientCore, P], Flow[T]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    @wraps(operation)
    async def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with operation_span(operation.__name__):
            return await client.run(operation(client.core, *args, **kwargs))

    return method


class Client:
    """A blocking client of one cluster. Not for use by several threads at once.

    `bootstrap`: addresses of one or more brokers, URLs or `host:port`, as a sequence
    or separated by commas. The client finds the other brokers from there. `security`: by default
    what the environment says (`Security.from_environment`); a `transport` that is given has its
    own. Raises InvalidRequest for addresses that are none, and UnusableClientCredentials.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        policy: RetryPolicy | None = None,
        transport: Transport | None = None,
        security: Security | None = None,
    ) -> None:
        self.core = _core(bootstrap, policy)
        self.given_transport = transport
        self.authenticator = Authenticator(security or Security.from_environment())
        self.transport: Transport = transport or StdlibTransport(self.authenticator)
        self._closed = False

    def run(self, flow: Flow[T]) -> T:
        """Run a flow of this client's core; raises InvalidRequest once closed."""
        self._check_open()
        return drive(flow, traced(self.transport), time.sleep, self._check_open)

    def close(self) -> None:
        """Close the connections; nothing can be asked any more."""
        self._closed = True
        self.transport.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    metadata = _blocking(ClientCore.metadata)
    list_topics = _blocking(ClientCore.list_topics)
    describe = _blocking(ClientCore.describe)
    create_topic = _blocking(administration.create_topic)
    delete_topic = _blocking(administration.delete_topic)
    brokers = _blocking(ClientCore.brokers)
    controller = _blocking(ClientCore.controller)
    elect = _blocking(administration.elect)
    administer = _blocking(administration.administer)
    find_coordinator = _blocking(ClientCore.find_coordinator)
    offsets = _blocking(ClientCore.offsets)
    offset_for_timestamp = _blocking(ClientCore.offset_for_timestamp)
    new_producer_id = _blocking(ClientCore.new_producer_id)
    produce = _blocking(ClientCore.produce)
    produce_batches = _blocking(ClientCore.produce_batches)
    fetch = _blocking(ClientCore.fetch)
    fetch_batches = _blocking(ClientCore.fetch_batches)
    list_groups = _blocking(groups.list_groups)
    describe_group = _blocking(groups.describe_group)
    group_lag = _blocking(groups.group_lag)
    group_offsets = _blocking(groups.group_offsets)
    commit_offsets = _blocking(groups.commit_offsets)
    reset_offsets = _blocking(groups.reset_offsets)
    rebalance_group = _blocking(groups.rebalance_group)
    delete_group = _blocking(groups.delete_group)
    evict_member = _blocking(groups.evict_member)


class AsyncClient:
    """A client of one cluster for an event loop; any number of tasks may share it.

    The parameters are those of `Client`.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        policy: RetryPolicy | None = None,
        transport: AsyncTransport | None = None,
        security: Security | None = None,
    ) -> None:
        self.core = _core(bootstrap, policy)
        self.authenticator = Authenticator(security or Security.from_environment())
        self.transport: AsyncTransport = transport or _async_transport(self.authenticator)
        self._closed = False
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow of this client's core; raises InvalidRequest once closed.

        A call that is under way then sends nothing more, and ends so too, unless the outcome of
        what it has sent is unknown.
        """
        self._check_open()
        return await drive_async(
            flow, traced_async(self.transport), asyncio.sleep, self._check_open
        )

    async def run_in_turn(self, group: str, flow: Flow[T], limit_s: float | None = None) -> T:
        """Run a flow that commits for a group, once those of earlier calls have ended.

        A commit that is retried would overwrite a later one otherwise: only members number theirs.

        Raises:
            CoordinatorNotAvailable: they have not after `limit_s`; the flow was not begun.

        """
        turn = self._turns.setdefault(group, asyncio.Lock())
        try:
            async with asyncio.timeout(self.core.policy.timeout_s if limit_s is None else limit_s):
                await turn.acquire()
        except TimeoutError:
            raise CoordinatorNotAvailable(
                f"an earlier commit of group {group!r} has no answer yet: nothing was sent"
            ) from None
        try:
            return await self.run(flow)
        finally:
            turn.release()

    async def commit_offsets(
        self,
        group: str,
        offsets: PartitionPositionMap,
        metadata: GroupMetadata | None = None,
        *,
        sequence: int | None = None,
        topic_ids: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets of a group, after earlier calls for it; see `Client.commit_offsets`.

        Raises:
            CoordinatorNotAvailable: also if an earlier one has no answer after `timeout_s`.

        """
        flow = groups.commit_offsets(
            self.core,
            group,
            offsets,
            metadata,
            sequence=sequence,
            topic_ids=topic_ids,
            timeout_s=timeout_s,
        )
        with operation_span("commit_offsets"):
            await self.run_in_turn(group, flow, timeout_s)

    async def aclose(self) -> None:
        """Close the connections; nothing can be asked any more."""
        self._closed = True
        await self.transport.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(CLOSED)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    metadata = _awaiting(ClientCore.metadata)
    list_topics = _awaiting(ClientCore.list_topics)
    describe = _awaiting(ClientCore.describe)
    create_topic = _awaiting(administration.create_topic)
    delete_topic = _awaiting(administration.delete_topic)
    brokers = _awaiting(ClientCore.brokers)
    controller = _awaiting(ClientCore.controller)
    elect = _awaiting(administration.elect)
    administer = _awaiting(administration.administer)
    find_coordinator = _awaiting(ClientCore.find_coordinator)
    offsets = _awaiting(ClientCore.offsets)
    offset_for_timestamp = _awaiting(ClientCore.offset_for_timestamp)
    new_producer_id = _awaiting(ClientCore.new_producer_id)
    produce = _awaiting(ClientCore.produce)
    produce_batches = _awaiting(ClientCore.produce_batches)
    fetch = _awaiting(ClientCore.fetch)
    fetch_batches = _awaiting(ClientCore.fetch_batches)
    list_groups = _awaiting(groups.list_groups)
    describe_group = _awaiting(groups.describe_group)
    group_lag = _awaiting(groups.group_lag)
    group_offsets = _awaiting(groups.group_offsets)
    reset_offsets = _awaiting(groups.reset_offsets)
    rebalance_group = _awaiting(groups.rebalance_group)
    delete_group = _awaiting(groups.delete_group)
    evict_member = _awaiting(groups.evict_member)

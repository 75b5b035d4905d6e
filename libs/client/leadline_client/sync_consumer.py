"""The blocking consumer, for code without an event loop.

An `AsyncConsumer` runs on a thread of its own.

    with Consumer("http://127.0.0.1:9091", "billing") as consumer:
        consumer.subscribe(["orders"])
        for consumed in consumer:
            print(consumed.topic, consumed.partition, consumed.value)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import wait as wait_for_all
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from leadline_client.client import AsyncClient, BlockingSource, async_client_of
from leadline_client.clock import monotonic_s
from leadline_client.consumer import (
    DEFAULT_LIMITS,
    DEFAULT_SETTINGS,
    NO_CALLBACKS,
    AsyncConsumer,
    Step,
)
from leadline_client.consumer_settings import (
    ConsumerSettings,
    Notice,
    Partitions,
    RebalanceListener,
)
from leadline_client.errors import DeserializationFailed
from leadline_client.event_loop_thread import EventLoopThread
from leadline_client.fetching import ConsumedRecord
from leadline_client.groups import GroupMetadata, PartitionPositionMap
from leadline_client.reading import ReadLimits
from leadline_client.security import Security
from leadline_client.serializers import failures
from leadline_client.serializers.protocols import Deserializer, OnDeserializationError
from leadline_client.type_parameters import K, V

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncConsumer[Any, Any], P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Consumer[Any, Any], P], T]:
    @wraps(method)
    def blocking(consumer: Consumer[Any, Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return consumer._thread.run(method(consumer._consumer, *args, **kwargs))

    return blocking


class Consumer(Generic[K, V]):
    """A consumer for code without an event loop; it calls the listener on the polling thread.

    `source`: addresses of brokers with their `security`, or a client, of which it takes the
    addresses, the retry policy and the security. For the deserializers see `AsyncConsumer`; a
    function for `on_deserialization_error` is called on the polling thread.
    Only one thread at a time may poll it; after that any thread may `close` it.
    """

    def __init__(
        self,
        source: BlockingSource,
        group: str | None = None,
        *,
        settings: ConsumerSettings = DEFAULT_SETTINGS,
        listener: RebalanceListener = NO_CALLBACKS,
        limits: ReadLimits = DEFAULT_LIMITS,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        on_deserialization_error: OnDeserializationError = "raise",
        security: Security | None = None,
    ) -> None:
        self._on_deserialization_error = failures.checked(on_deserialization_error)
        self._client = async_client_of(source, security)
        self._thread = EventLoopThread("leadline-consumer")
        self._consumer = AsyncConsumer(
            self._client,
            group,
            settings=settings,
            limits=limits,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        self._thread.end_with(self, partial(_close, self._consumer, self._client, consumed=False))
        self._listener = listener
        self._closed = False
        self._commits: set[ThreadFuture[None]] = set()
        """Commits of `commit_async` that have no outcome yet; `close` waits for them."""

    @property
    def assignment(self) -> Partitions:
        """The assigned partitions; with a group, those of which the listener has been called."""
        return self._consumer.assignment

    @property
    def threads(self) -> tuple[Partitions, ...]:
        """The assignment by thread, if the settings ask for several threads."""
        return self._consumer.threads

    @property
    def group_metadata(self) -> GroupMetadata | None:
        """What `Client.commit_offsets` needs to commit as this member; None while it is none.

        It has the member's secret: give it to nobody who may not commit in its name.
        """
        return self._consumer.group_metadata

    @property
    def paused(self) -> Partitions:
        """The paused partitions."""
        return self._consumer.paused

    subscribe = _blocking(AsyncConsumer.subscribe)
    assign = _blocking(AsyncConsumer.assign)
    seek = _blocking(AsyncConsumer.seek)
    seek_to_time = _blocking(AsyncConsumer.seek_to_time)
    position = _blocking(AsyncConsumer.position)
    committed = _blocking(AsyncConsumer.committed)
    commit = _blocking(AsyncConsumer.commit)

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Deliver no records of these; they stay assigned and keep their positions."""
        self._thread.call(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Deliver records of these again."""
        self._thread.call(lambda: self._consumer.resume(partitions))

    def commit_async(
        self, offsets: PartitionPositionMap | None = None, *, timeout_s: float = 30.0
    ) -> ThreadFuture[None]:
        """Commit without waiting; the future raises the errors of `commit`.

        `close` waits for it.
        """
        commit = self._thread.start(self._consumer.commit(offsets, timeout_s=timeout_s))
        self._commits.add(commit)
        commit.add_done_callback(self._commits.discard)
        return commit

    def poll(
        self, timeout_s: float = 1.0, max_records: int | None = None
    ) -> list[ConsumedRecord[K, V]]:
        """Return new records of any partitions; see `AsyncConsumer.poll`."""
        deadline_s = monotonic_s() + timeout_s
        taken: list[Step[K, V]] = []
        try:
            while True:
                self._thread.run(self._take(taken, deadline_s, max_records))
                step = taken[0]
                if isinstance(step, list):
                    return step
                taken.clear()
                if isinstance(step, Notice):
                    self._call_listener(step)
                    continue
                failures.handle(self._on_deserialization_error, step)
                self._leave_out(step)
                if monotonic_s() >= deadline_s:  # However many records are left out.
                    return []
        except BaseException:
            self._give_back(taken)
            raise

    async def _take(
        self, taken: list[Step[K, V]], deadline_s: float, max_records: int | None
    ) -> None:
        taken.append(await self._consumer.poll_step(deadline_s, max_records))

    def _give_back(self, taken: list[Step[K, V]]) -> None:
        """Have the next poll begin with what an interrupted one has taken, now or in this moment.

        Otherwise it would count as delivered, and be committed.
        """

        def give_back() -> None:
            for step in taken:
                self._consumer.give_back(step)

        if not self._thread.is_left_behind:
            with suppress(RuntimeError):  # Another thread has closed the loop.
                self._thread.call_soon(give_back)

    def __iter__(self) -> Iterator[ConsumedRecord[K, V]]:
        """Yield record after record; asking for the next one declares a record consumed."""
        while True:
            yield from self.poll(max_records=1)

    def close(self, *, consumed: bool = True) -> None:
        """Leave the group, stop reading, close the connections; see `AsyncConsumer.aclose`.

        A second call does nothing, nor does one in a forked child.
        """
        if self._closed or self._thread.is_left_behind:
            return
        self._closed = True
        try:
            while notice := self._thread.run(self._consumer.closing_notice(consumed=consumed)):
                self._call_listener(notice)
        finally:
            self._end(consumed=consumed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(consumed=kind is None)

    def _call_listener(self, notice: Notice) -> None:
        try:
            self._listener.call(notice)
        finally:
            self._thread.call(lambda: self._consumer.notice_handled(notice))

    def _leave_out(self, failed: DeserializationFailed) -> None:
        self._thread.call(lambda: self._consumer.skip(failed))

    def _end(self, *, consumed: bool) -> None:
        try:
            wait_for_all(list(self._commits))
            self._thread.run(_close(self._consumer, self._client, consumed=consumed))
        finally:
            self._thread.close()


async def _close(consumer: AsyncConsumer[Any, Any], client: AsyncClient, *, consumed: bool) -> None:
    await consumer.aclose(consumed=consumed)
    await client.aclose()

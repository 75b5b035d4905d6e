"""The run of the demo: produce under load, kill two leaders, read everything back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from leadline_cli.credentials import client_security
from leadline_cli.demo.display import DemoDisplay
from leadline_cli.demo.leadership import LeadershipTracker
from leadline_cli.demo.verdict import Verdict, judge
from leadline_cli.supervisor import Supervisor
from leadline_client.client import AsyncClient
from leadline_client.errors import LeadlineError
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.readers import AsyncPartitionReader
from leadline_client.sent_records import RecordMetadata
from leadline_client.wire import NewTopic

TOPIC: Final = "lines"
PARTITIONS: Final = 6
REPLICAS: Final = 3
LINE_HEADER: Final = "line"

_LOAD_S: Final = 10.0
_MINIMUM_RATE: Final = 2_500.0
_TICK_S: Final = 0.02
_WATCH_S: Final = 0.05
_FAILOVER_DEADLINE_S: Final = 25.0
_PRODUCER: Final = ProducerSettings(linger_ms=40, delivery_timeout_s=40)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of the demo. `seconds` is from the first line sent to the last acknowledged."""

    verdict: Verdict
    seconds: float
    leader_moves: int
    controller_moves: int

    @property
    def rate(self) -> float:
        """Acknowledged lines per second, the two failovers included."""
        return self.verdict.acknowledged / self.seconds if self.seconds else 0.0

    @property
    def holds(self) -> bool:
        """Whether leaders and the controller moved, and every line is intact."""
        return self.verdict.holds and self.leader_moves > 0 and self.controller_moves > 0


class Scenario:
    """One run on a started cluster."""

    def __init__(
        self,
        supervisor: Supervisor,
        tracker: LeadershipTracker,
        display: DemoDisplay,
        lines: Sequence[bytes],
    ) -> None:
        self._supervisor = supervisor
        self._tracker = tracker
        self._display = display
        self._lines = lines
        self._acknowledged: set[int] = set()
        self._failures: list[LeadlineError] = []
        self._sent = 0
        self._client = AsyncClient(
            [broker.url for broker in supervisor.layout.brokers],
            security=client_security(supervisor.layout.data_dir),
        )

    async def run(self) -> Report:
        """Create the topic, produce to it while leaders are killed, and read everything back."""
        async with self._client:
            await self._client.create_topic(NewTopic(TOPIC, PARTITIONS, REPLICAS))
            self._display.say(f"topic {TOPIC}: {PARTITIONS} partitions, {REPLICAS} replicas each")
            watcher = asyncio.create_task(self._watch())
            try:
                await self._until(lambda: bool(self._tracker.partitions))
                started_s = time.monotonic()
                await self._load()
                seconds = time.monotonic() - started_s
                self._display.say("every line was acknowledged or failed; reading everything back")
                verdict = await self._read_back()
            finally:
                watcher.cancel()
                await asyncio.wait([watcher])
        return Report(verdict, seconds, self._tracker.moves, self._tracker.controller_moves)

    async def _load(self) -> None:
        """Send every line at a steady rate; kill a broker after a third, a controller after two."""
        async with AsyncProducer(self._client, _PRODUCER) as producer:
            third = len(self._lines) // 3
            await self._send_until(producer, third)
            await self._kill_busiest_broker()
            await self._send_until(producer, 2 * third)
            await self._until(self._tracker.settled)
            await self._kill_controller()
            await self._send_until(producer, len(self._lines))
            await self._until(lambda: self._tracker.controller_moves > 0)
        self._show_progress()
        for failure in self._failures[:3]:
            self._display.say(f"a line failed: {failure.code} {failure.message}")

    async def _send_until(self, producer: AsyncProducer, end: int) -> None:
        rate = max(_MINIMUM_RATE, len(self._lines) / _LOAD_S)
        share = max(1, int(rate * _TICK_S))
        next_s = time.monotonic()
        while self._sent < end:
            for number in range(self._sent, min(self._sent + share, end)):
                await self._send(producer, number)
            next_s += _TICK_S
            self._show_progress()
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _send(self, producer: AsyncProducer, number: int) -> None:
        future = await producer.send(
            TOPIC,
            self._lines[number],
            partition=number % PARTITIONS,
            headers=((LINE_HEADER, str(number).encode()),),
        )
        self._sent += 1
        future.add_done_callback(lambda done: self._answered(number, done))

    def _answered(self, number: int, done: asyncio.Future[RecordMetadata]) -> None:
        if done.cancelled():
            return
        failure = done.exception()
        if failure is None:
            self._acknowledged.add(number)
        elif isinstance(failure, LeadlineError):
            self._failures.append(failure)

    def _show_progress(self) -> None:
        total = len(self._lines)
        waiting = self._sent - len(self._acknowledged) - len(self._failures)
        self._display.progress(
            f"sent {self._sent} of {total}, acknowledged {len(self._acknowledged)}, "
            f"waiting {waiting}"
        )

    async def _kill_busiest_broker(self) -> None:
        broker = self._tracker.busiest()
        led = self._tracker.led_by(broker)
        self._tracker.killed_at[broker] = time.monotonic()
        child = self._supervisor.children[f"broker-{broker}"]
        self._display.say(f"kill -9 broker {broker} (pid {child.pid}), leader of partitions {led}")
        await child.kill()

    async def _kill_controller(self) -> None:
        if self._tracker.controller is None:
            return
        controller, epoch = self._tracker.controller
        child = self._supervisor.children[f"controller-{controller}"]
        self._display.say(
            f"kill -9 controller {controller} (pid {child.pid}), active, epoch {epoch}"
        )
        await child.kill()

    async def _watch(self) -> None:
        """Poll the metadata as any client would, and print its changes."""
        while True:
            try:
                snapshot = await self._client.metadata([TOPIC])
            except LeadlineError as failure:
                self._display.say(f"no metadata: {failure.message}")
            else:
                for change in self._tracker.update(snapshot, time.monotonic()):
                    self._display.say(change)
            await asyncio.sleep(_WATCH_S)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` is true, at most until the failover deadline."""
        give_up_s = time.monotonic() + _FAILOVER_DEADLINE_S
        while not holds() and time.monotonic() < give_up_s:  # noqa: ASYNC110 - the metadata is polled
            await asyncio.sleep(_WATCH_S)

    async def _read_back(self) -> Verdict:
        rows = await asyncio.gather(*(self._read(number) for number in range(PARTITIONS)))
        return judge(self._lines, self._acknowledged, dict(enumerate(rows)))

    async def _read(self, partition: int) -> list[tuple[int, bytes]]:
        end = (await self._client.offsets(TOPIC, partition)).high_watermark
        reader = AsyncPartitionReader(self._client, TOPIC, partition)
        rows = []
        async for record in reader.read_to(end):
            number = dict(record.headers).get(LINE_HEADER) or b"-1"
            rows.append((int(number), record.value or b""))
        return rows

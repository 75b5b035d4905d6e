"""Three brokers of Apache Kafka in ZooKeeper mode."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import NotControllerError, for_code

from leadline_cli.java_runtime import find_java
from leadline_cli.processes import Child
from leadline_common.tcp_ports import LOOPBACK, ReservedPorts
from leadline_common.zk.session import ZkSession
from peers.kafka import metadata
from peers.kafka.tls import tls_settings
from peers.systems.system import BROKERS, MIN_IN_SYNC, NO_CONFIGS, REPLICATION, View
from peers.systems.waiting import until

REQUEST_TIMEOUT_MS: Final = 300_000
ASK_AGAIN_S: Final = 0.1
MAIN_CLASS: Final = "kafka.Kafka"
# What Kafka's own start script gives the JVM, but for the remote management.
JVM_FLAGS: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
LOGGING: Final = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p %c{1} %m%n
"""


class KafkaCluster:
    """See `System`. With `tls`, its brokers encrypt what they send each other, as Leadline's do."""

    name = "kafka"

    def __init__(
        self, directory: Path, jars: Path, zookeeper: str, session_ms: int, *, tls: bool = False
    ) -> None:
        self._zookeeper = zookeeper
        self._speaks_tls = tls
        self.start_s = 0.0
        self._directory = directory
        self._jars = jars
        self._session_ms = session_ms
        self._reserved = ReservedPorts()
        self._ports: dict[int, int] = {}
        self._children: dict[int, Child] = {}
        self._killed_controller = 0
        self._admins: list[AIOKafkaAdminClient] = []

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as the clients take them."""
        return self.bootstrap_without(0)

    def bootstrap_without(self, broker: int) -> str:
        """Return the addresses of the other brokers."""
        ports = [port for number, port in self._ports.items() if number != broker]
        return ",".join(f"{LOOPBACK}:{port}" for port in ports)

    async def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        configs: Mapping[str, str] = NO_CONFIGS,
        replicas: int = REPLICATION,
    ) -> None:
        """Create a topic, of whose replicas two must acknowledge."""
        topic = NewTopic(name, partitions, replicas, topic_configs=dict(configs))
        while True:
            answer = await self._ask(lambda admin: admin.create_topics([topic]))
            try:
                _check(answer.topic_errors)
            except NotControllerError:
                # The controller has changed. Leadline's client asks the next one by itself.
                await self._forget_admins()
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                return

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        answer = await self._ask(lambda admin: admin.delete_topics([name]))
        _check(answer.topic_error_codes)

    @asynccontextmanager
    async def zookeeper_session(self) -> AsyncIterator[ZkSession]:
        """Open a session that may read this system's nodes."""
        session = ZkSession()
        await session.start(self._zookeeper, 10_000)
        try:
            yield session
        finally:
            await session.close()

    async def view(self, broker: int) -> View:
        """Return the whole metadata as one broker has it."""
        return await metadata.ask(LOOPBACK, self._ports[broker])

    def broker_pid(self, broker: int) -> int:
        """Return the process id of a broker."""
        return self._children[broker].pid or 0

    async def kill_broker(self, broker: int) -> None:
        """End a broker as a crash does."""
        await self._forget_admins()
        await self._children[broker].kill()

    async def restart_broker(self, broker: int) -> None:
        """Start a killed broker again, without waiting for it."""
        self._children[broker].start()

    async def controller_broker(self) -> int | None:
        """Return the broker that is the active controller."""
        async with self.zookeeper_session() as session:
            data, _ = await session.get("/controller")
        return int(json.loads(data)["brokerid"])

    async def kill_controller(self) -> int | None:
        """End the active controller, which is one of the brokers, as a crash does."""
        self._killed_controller = await self.controller_broker() or 0
        await self.kill_broker(self._killed_controller)
        return self._killed_controller

    async def restart_controller(self) -> None:
        """Start again what `kill_controller` killed, without waiting for it."""
        await self.restart_broker(self._killed_controller)

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True)
        (self._directory / "log4j.properties").write_text(LOGGING)
        begun = time.monotonic()
        try:
            for number in BROKERS:
                self._ports[number] = self._reserved.take()
                child = Child(f"kafka-{number}", self._argv(number), self._log(number))
                self._children[number] = child
                child.start()
            self.start_s = await until(self._is_up, "Kafka is up") - begun
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._forget_admins()
        await asyncio.gather(*(child.stop() for child in self._children.values()))
        self._reserved.release()

    async def _is_up(self) -> bool:
        for child in self._children.values():
            if not child.running:
                raise RuntimeError(f"{child.name} ended:\n{child.tail()}")
        views = [await self.view(number) for number in BROKERS]
        return all(one.brokers == frozenset(BROKERS) for one in views)

    async def _ask(self, question: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        """Ask the controller; a client that failed may know a dead one, and is not used again."""
        admin = self._admins.pop() if self._admins else await self._new_admin()
        try:
            answer = await question(admin)
        except BaseException:
            await admin.close()
            raise
        self._admins.append(admin)
        return answer

    async def _new_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(
            bootstrap_servers=self._alive(), request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        try:
            await admin.start()
        except BaseException:
            await admin.close()
            raise
        return admin

    async def _forget_admins(self) -> None:
        while self._admins:
            await self._admins.pop().close()

    def _alive(self) -> list[str]:
        running = (number for number, child in self._children.items() if child.running)
        return [f"{LOOPBACK}:{self._ports[number]}" for number in running]

    def _log(self, number: int) -> Path:
        return self._directory / f"{number}.out"

    def _argv(self, number: int) -> list[str]:
        settings = self._directory / f"{number}.properties"
        settings.write_text(
            "".join(f"{name}={value}\n" for name, value in self._settings(number).items())
        )
        logging = f"-Dlog4j.configuration=file:{self._directory / 'log4j.properties'}"
        classes = f"{self._jars}/*"
        return [str(find_java()), *JVM_FLAGS, logging, "-cp", classes, MAIN_CLASS, str(settings)]

    def _settings(self, number: int) -> dict[str, object]:
        port = self._ports[number]
        listeners: dict[str, object] = {"listeners": f"PLAINTEXT://{LOOPBACK}:{port}"}
        if self._speaks_tls:
            listeners = tls_settings(self._directory, number, self._reserved.take(), port)
        return listeners | {
            "broker.id": number,
            "log.dirs": self._directory / f"broker-{number}",
            "zookeeper.connect": self._zookeeper,
            "zookeeper.session.timeout.ms": self._session_ms,
            "default.replication.factor": REPLICATION,
            "min.insync.replicas": MIN_IN_SYNC,
            "auto.create.topics.enable": "false",
        }


def _check(results: Iterable[tuple[Any, ...]]) -> None:
    """Raise the error of the first topic that has one."""
    for topic, code, *details in results:
        if code:
            raise for_code(code)(f"{topic}: {details}")

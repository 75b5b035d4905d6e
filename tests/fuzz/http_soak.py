"""Send spoiled and mutated requests to a running cluster: `python -m tests.fuzz http --minutes 60`.

Two kinds, in turn, for every operation of the documents: requests that differ a little from the
example (`tests.support.openapi.spoiled`), and the bytes of the example's request mutated, truncated
bodies included. Each batch has a seed of its own, which follows from `--seed`. After each batch
nothing may have answered 5xx but 503 with Retry-After, every process must be the same and answer,
and no epoch may have changed; the leader epochs of one topic may rise, because some of the requests
are valid elections. Then what valid requests have created or set is removed.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.mutations import mutated
from tests.support.openapi.document import TOPIC, Call, Described, end_tasks, operations_at
from tests.support.openapi.spoiled import spoiled
from tests.support.services.cluster import CALM, Cluster
from tests.support.services.up import until

DOCUMENTS = {"broker": "broker-1", "controller": "controller-1", "coordinator": "coordinator-1"}
"""The service that each document is read from, and that gets its requests."""
SETTINGS = {**CALM, "request.head.timeout.ms": "1000", "transfer.grace.ms": "1000"}
EACH = 10
"""Requests of each kind for each operation in a batch."""
AT_ONCE = 16
ANSWER_S = 30.0
HASTE = 0.3
"""The share of raw requests whose sender leaves without reading the answer."""
UNKNOWN_OUTCOME = 504
"""A valid write that did not succeed in the time that it stated; never an internal error."""
NO_ANSWER = 0
CONFIGS = {"/v1/configs": "cluster"} | {
    f"/v1/brokers/{number}/configs": "broker" for number in (1, 2, 3)
}
"""Where settings can be changed, and how those that were changed there are marked."""


@dataclass(slots=True)
class Soak:
    """One cluster, what it was sent, and what was wrong."""

    cluster: Cluster
    seed: int
    documents: Sequence[str]
    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    batches: int = 0
    _operations: dict[str, list[Described]] = field(default_factory=dict)
    _before: dict[str, Any] = field(default_factory=dict)

    async def run(self, minutes: float) -> None:
        """Send batches until the time is over, or something is wrong."""
        give_up = time.monotonic() + minutes * 60
        with httpx.Client(trust_env=False, timeout=60) as client:
            for name in self.documents:
                self._operations[name] = operations_at(client, self.cluster.url(DOCUMENTS[name]))
            await self._clean_up(client)
            self._before = await self._state()
            while time.monotonic() < give_up and not self.findings:
                number = self.seed + self.batches
                for name, operations in self._operations.items():
                    await asyncio.to_thread(self._send_spoiled, client, name, operations, number)
                    await self._send_mutated(name, operations, random.Random(number))
                await self._check()
                await self._clean_up(client)
                self.batches += 1

    def _send_spoiled(
        self, client: httpx.Client, name: str, operations: Sequence[Described], number: int
    ) -> None:
        url = self.cluster.url(DOCUMENTS[name])
        for operation in operations:
            self._send_spoiled_to(client, url, name, operation, number)

    def _send_spoiled_to(
        self, client: httpx.Client, url: str, name: str, operation: Described, number: int
    ) -> None:
        @seed(number)
        @settings(
            max_examples=EACH,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(spoiled(operation))
        def send(call: Call) -> None:
            try:
                answer = operation.send(client, url, call)
            except httpx.HTTPError as error:
                self.findings.append(f"{name} {operation.id} {call}: {error!r}")
                return
            retry = answer.headers.get("retry-after")
            self._judge(name, operation, answer.status_code, retry, call, answer.text)

        send()

    async def _send_mutated(
        self, name: str, operations: Sequence[Described], choice: random.Random
    ) -> None:
        port = urlsplit(self.cluster.url(DOCUMENTS[name])).port or 0
        examples = [raw(operation) for operation in operations]
        slots = asyncio.Semaphore(AT_ONCE)

        async def send(operation: Described, data: bytes, *, wait: bool) -> None:
            async with slots:
                answer = await exchange(port, data, wait=wait)
            head, _, body = answer.partition(b"\r\n\r\n")
            status = int(head[9:12]) if head.startswith(b"HTTP/1.1 ") else NO_ANSWER
            retry = "stated" if b"\r\nretry-after:" in head.lower() else None
            shown = body[:500].decode(errors="replace")
            self._judge(name, operation, status, retry, data[:2_000], shown)

        await asyncio.gather(
            *(
                send(operation, mutated(choice, example, examples), wait=choice.random() > HASTE)
                for operation, example in zip(operations, examples, strict=True)
                for _ in range(EACH)
            )
        )

    def _judge(
        self,
        name: str,
        operation: Described,
        status: int,
        retry: str | None,
        sent: object,
        answer: str,
    ) -> None:
        self.counts[name, operation.id, status] += 1
        is_fine = (
            status < 500
            or (status == 503 and retry is not None)
            or (status == UNKNOWN_OUTCOME and "internal error" not in answer)
        )
        if not is_fine or status == 500:
            self.findings.append(f"{name} {operation.id}: {sent!r} was answered {status} {answer}")

    async def _state(self) -> dict[str, Any]:
        """Return what no request may change, and the leader epochs by topic id."""
        controller = (await self.cluster.get("controller-1", "/v1/controller")).json()
        coordinator = (await self.cluster.get("coordinator-1", "/v1/coordinator")).json()
        metadata = (await self.cluster.get("controller-1", "/v1/metadata")).json()
        children = self.cluster.supervisor.children
        return {
            "the controller's epoch": controller["controller"]["epoch"],
            "the coordinator": coordinator,
            "the processes": {name: (one.pid, one.running) for name, one in children.items()},
            "leader epochs": {
                (topic["topic_id"], row[0]): row[2]
                for topic in metadata["topics"].values()
                for row in topic["partitions"]
            },
        }

    async def _check(self) -> None:
        for spec in self.cluster.supervisor.layout.services:
            health = await self.cluster.get(spec.name, "/healthz")
            if health.status_code != httpx.codes.OK:
                self.findings.append(f"{spec.name} answers {health.status_code} to /healthz")
        now = await self._state()
        before, epochs = self._before.pop("leader epochs"), now["leader epochs"]
        for name, value in self._before.items():
            if now[name] != value:
                self.findings.append(f"{name}: {value} before, {now[name]} now")
        for place, epoch in before.items():
            if epochs.get(place, epoch) < epoch:
                self.findings.append(f"leader epoch {epochs[place]} of {place} after {epoch}")
        self._before = now

    async def _clean_up(self, client: httpx.Client) -> None:
        url = self.cluster.url(await self.cluster.active_controller())
        await asyncio.to_thread(clean_up, client, url)

    def report(self) -> str:
        """Return the counts per operation and status, the seed and the findings."""
        operations: dict[tuple[str, str], Counter[int]] = {}
        for (name, operation, status), count in self.counts.items():
            operations.setdefault((name, operation), Counter())[status] += count
        lines = [
            f"{name} {operation}: "
            + ", ".join(f"{status or 'no answer'} {count}" for status, count in sorted(by.items()))
            for (name, operation), by in sorted(operations.items())
        ]
        lines.append(
            f"seed {self.seed}: {self.counts.total()} requests in {self.batches} batches, "
            f"{len(self.findings)} findings"
        )
        return "\n".join([*lines, *self.findings])


def clean_up(client: httpx.Client, url: str) -> None:
    """Remove what valid requests have made, and make the topic of the examples again."""
    end_tasks(client, url)
    for path, source in CONFIGS.items():
        document = client.get(url + path).raise_for_status().json()
        own = [row["name"] for row in document["configs"] if row["source"] == source]
        if own:
            client.patch(url + path, json={"remove": own}).raise_for_status()
    listing = client.get(f"{url}/v1/topics").raise_for_status().json()
    for topic in listing["topics"]:
        if topic["name"] != TOPIC:
            path = f"/v1/topics/{quote(topic['name'], safe='')}"
            client.delete(url + path, params={"wait_ms": 30_000})

    def is_there() -> bool:
        if client.get(f"{url}/v1/topics/{TOPIC}").is_success:
            return True
        wanted = {"name": TOPIC, "replica_assignment": {"0": [1, 2, 3]}}
        return client.post(f"{url}/v1/topics", json=wanted).is_success

    until(is_there, "the topic of the examples exists")


def raw(operation: Described) -> bytes:
    """Return the example of an operation as the bytes of a request."""
    call = operation.example()
    path = operation.path
    for name, value in call.path.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    query = f"?{urlencode(call.query)}" if call.query else ""
    body = call.content or b""
    headers = {"Host": "127.0.0.1", "Connection": "close", **call.headers}
    if body:
        headers["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{operation.method.upper()} {path}{query} HTTP/1.1\r\n{head}\r\n".encode() + body


async def exchange(port: int, data: bytes, *, wait: bool) -> bytes:
    """Send bytes; return the beginning of the answer, or nothing if the sender does not wait."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        async with asyncio.timeout(ANSWER_S):
            writer.write(data)
            await writer.drain()
            if wait:
                answer = await reader.read(8_192)
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
    return answer


async def soak(minutes: float, first_seed: int, documents: Sequence[str]) -> int:
    """Start a cluster and send requests; return 1 and keep its directory after a finding."""
    path = Path(tempfile.mkdtemp(prefix="leadline-fuzz-"))
    async with Cluster(path, controllers=2, coordinators=1, settings=SETTINGS) as cluster:
        running = Soak(cluster, first_seed, documents)
        try:
            await running.run(minutes)
        finally:
            sys.stdout.write(running.report() + "\n")
    if running.findings:
        sys.stdout.write(f"the cluster's directory is kept: {path}\n")
        return 1
    shutil.rmtree(path)
    return 0

"""One cause id through a client, a broker, the controller, ZooKeeper and all brokers, as spans.

The last test ends the collector.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.services.cluster import CALM, Cluster, wait_until
from tests.support.tracing.collector import CollectedSpan, Collector, collecting, rendered

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

BROKERS = {"broker-1", "broker-2", "broker-3"}
LEADLINE = Path(sys.executable).with_name("leadline")


class Traced(NamedTuple):
    """A cluster that sends its spans to a collector."""

    cluster: Cluster
    collector: Collector

    async def command(self, *words: str, stdin: bytes = b"") -> str:
        """Run a command that is traced, and return the id of its trace."""
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": self.collector.url}
        known = {span.trace_id for span in self._of_commands()}
        arguments = [str(LEADLINE), *words, "--bootstrap", self.cluster.bootstrap]

        def run() -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                arguments, env=environment, input=stdin, capture_output=True, check=False
            )

        done = await asyncio.to_thread(run)
        assert done.returncode == 0, done.stderr
        (trace,) = {span.trace_id for span in self._of_commands()} - known
        return trace

    def _of_commands(self) -> list[CollectedSpan]:
        return [span for span in self.collector.spans if span.service == "leadline"]

    async def until(self, trace: str, name: str, services: set[str]) -> list[CollectedSpan]:
        """Wait until each of these services has a span with that name in a trace.

        Services send their spans at different times, so the parents are waited for, too.
        """

        async def complete() -> list[CollectedSpan] | None:
            found = self.collector.of_trace(trace)
            ids = {span.span_id for span in found}
            if not all(span.parent_id in ids for span in found if span.parent_id):
                return None
            return found if {s.service for s in found if s.name == name} >= services else None

        try:
            return await wait_until(complete, f"{services} sent {name}", 30)
        except AssertionError:
            print(rendered(self.collector.of_trace(trace)))  # noqa: T201 - what there is of it
            raise


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def traced(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Traced]:
    async with collecting() as collector:
        settings = {**CALM, "tracing.otlp.endpoint": collector.url}
        data_dir = tmp_path_factory.mktemp("traced")
        async with Cluster(data_dir, settings=settings) as cluster:
            await wait_until(lambda: _all_live(cluster), "all brokers are live")
            yield Traced(cluster, collector)


async def _all_live(cluster: Cluster) -> bool:
    return len(await cluster.client.brokers()) == len(BROKERS)


def parent_of(span: CollectedSpan, spans: list[CollectedSpan]) -> CollectedSpan:
    return next(other for other in spans if other.span_id == span.parent_id)


def path_to(span: CollectedSpan, spans: list[CollectedSpan]) -> list[str]:
    """The names from the root to a span."""
    names = [span.name]
    while span.parent_id:
        span = parent_of(span, spans)
        names.insert(0, span.name)
    return names


async def test_creating_a_topic_is_one_trace_with_one_cause_from_the_client_to_all_brokers(
    traced: Traced,
) -> None:
    words = ("topics", "create", "orders", "--partitions", "3", "--replication-factor", "3")
    trace = await traced.command(*words)
    applied = "POST /v1/replica/update-metadata"
    await traced.until(trace, applied, BROKERS)
    spans = await traced.until(trace, "handle CreateTopic", {"controller-1"})

    (cause,) = {span.cause for span in spans if span.cause}
    assert {span.name for span in spans if not span.cause} == {
        "leadline create",
        "leadline create_topic",
    }
    assert {span.service for span in spans} == {"leadline", "controller-1", *BROKERS}
    multis = [span for span in spans if span.name == "zookeeper multi"]
    of_key, multi, *_ = multis  # First the Idempotency-Key of the request is stored.
    assert path_to(of_key, spans)[-2:] == ["handle TakeKey", "zookeeper multi"]
    assert path_to(multi, spans) == [
        "leadline create",
        "leadline create_topic",
        "POST",
        "POST /v1/topics",
        "forward POST",
        "POST /v1/topics",
        "handle CreateTopic",
        "zookeeper multi",
    ]
    assert multi.attributes["zookeeper.zxid"] > 0
    told = [span for span in spans if span.name == "POST /v1/replica/leader-and-isr"]
    assert {span.service for span in told} == {"controller-1", *BROKERS}
    for span in told:
        if span.service in BROKERS:
            assert parent_of(span, spans).service == "controller-1"
            assert span.attributes["leadline.caller"] == "controller 1"
    audit = await traced.cluster.get("controller-1", "/v1/audit", cause=cause)
    assert {row["cause"] for row in audit.json()["entries"]} == {cause}


async def test_a_produce_shows_when_each_replica_has_it_on_disk(traced: Traced) -> None:
    await traced.cluster.client.create_topic(NewTopic("lines", 1, 3))
    name = "POST /v1/topics/{topic}/partitions/{partition}/records"
    async with asyncio.timeout(120):
        while True:
            await traced.cluster.in_sync("lines", 3)
            trace = await traced.command("produce", "lines", stdin=b"one\n")
            leader = await traced.cluster.leader_of("lines", 0)
            spans = await traced.until(trace, name, {leader})
            (waited,) = [span for span in spans if span.name == "wait for replicas"]
            if {about["leadline.broker"] for _, about in waited.events} == {1, 2, 3}:
                break  # Else a busy follower was out of the ISR, and nobody waited for it.

    (request,) = [span for span in spans if span.name == name]
    about = request.attributes
    assert (about["messaging.destination.name"], about["messaging.destination.partition.id"]) == (
        "lines",
        "0",
    )
    assert about["leadline.acks"] == "all"
    children = {span.name: span for span in spans if span.parent_id == request.span_id}
    assert children.keys() == {"check batches", "append", "wait for replicas"}
    assert {name for name, _ in waited.events} == {"on disk"}


async def test_a_refused_produce_is_recorded_with_its_code(traced: Traced) -> None:
    response = await traced.cluster.post(
        "broker-1", "/v1/topics/none/partitions/0/records", json={"records": [{"value": "x"}]}
    )
    cause = response.headers["x-leadline-cause"]

    async def recorded() -> CollectedSpan | None:
        return next((span for span in traced.collector.spans if span.cause == cause), None)

    span = await wait_until(recorded, "the span of the refused request", 30)
    assert span.attributes["leadline.error_code"] == response.json()["error_code"]
    assert span.attributes["leadline.outcome"] == "refused"


async def test_replica_fetches_and_heartbeats_make_no_traces(traced: Traced) -> None:
    # The test before has waited for spans of this broker, so that its earlier ones are here.
    background = {"POST /v1/replica/fetch", "POST /v1/heartbeat"}
    assert [s for s in traced.collector.spans if s.name in background] == []


async def test_when_the_collector_ends_requests_are_served_and_each_service_logs_it_once(
    traced: Traced,
) -> None:
    cluster, missing = traced.cluster, "collector does not take spans"
    await traced.collector.stop()
    await cluster.client.create_topic(NewTopic("after", 1, 3))
    leader = await cluster.leader_of("after", 0)
    for number in range(50):
        await cluster.client.produce("after", 0, [OutgoingRecord(b"%d" % number)])
    assert (await cluster.client.offsets("after", 0)).high_watermark == 50

    async def logged() -> bool:
        await cluster.client.produce("after", 0, [OutgoingRecord(b"more")])
        return missing in cluster.log(leader)

    await wait_until(logged, "the leader has logged it", 30)
    assert await cluster.terminate(leader) == 0
    log = cluster.log(leader)
    assert log.count(missing) == 1
    assert "opentelemetry" not in log

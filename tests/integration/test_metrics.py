"""What running services serve: as documented, as the rules and the dashboard need it.

The alert rules are evaluated on scrapes of a cluster: a healthy one fires nothing, and after a kill
of a broker those fire that are meant for it. How long a rule's condition must hold (`for`) is
ignored: what would fire later fires at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import chain

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from leadline_client.wire import NewTopic
from tests.support.promql.evaluator import Evaluator
from tests.support.promql.rules import (
    documented,
    expressions_of,
    labels_by_name,
    load_dashboard,
    load_rules,
    problems_of_expression,
)
from tests.support.promql.scrapes import Scrapes, Target
from tests.support.services.cluster import Cluster, wait_until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

TOPIC = "orders"
STRICT = {"min.insync.replicas": "3"}
"""With three replicas, one that is missing is one too many."""
KILLED = "broker-3"
WITH_TLS = {"leadline_public_certificate_not_after_timestamp_seconds"}
"""Documented for every service, served by those with TLS for clients (`secure/`)."""
AFTER_A_KILL = {
    "LeadlineServiceDown",
    "LeadlineUnderReplicatedPartitions",
    "LeadlineUnderMinIsrPartitions",
    "LeadlineBrokerFailed",
}
NOT_FOR_THIS_MACHINE = {
    "LeadlineDiskNearlyFull",
    "LeadlineEventLoopSlow",
    "LeadlineEventQueueSlow",
    "LeadlineFsyncSlow",
    "LeadlineProduceSlow",
}
"""These tell of the machine that runs the tests, whatever Leadline does."""
EMPTY_UNTIL_IT_HAPPENS = {
    "leadline_http_refused_connections_total",
    "leadline_coordinator_evictions_total",
    "leadline_coordinator_rebalances_total",
}
"""Metrics whose labels appear with the first event, which a healthy cluster does not have."""


@dataclass
class Monitor:
    """Scrapes a cluster as Prometheus would, and evaluates expressions."""

    cluster: Cluster
    scrapes: Scrapes = field(default_factory=Scrapes)
    texts: dict[str, str] = field(default_factory=dict)

    async def scrape(self) -> None:
        """Scrape every service once, at the present time."""
        for service in self.cluster.supervisor.layout.services:
            kind = service.name.rpartition("-")[0]
            if kind == "zookeeper":
                continue
            target = Target(f"leadline-{kind}", service.name)
            try:
                answer = await self.cluster.get(service.name, "/metrics")
            except httpx.HTTPError:
                self.scrapes.add(time.time(), target, None)
                continue
            self.texts[service.name] = answer.raise_for_status().text
            self.scrapes.add(time.time(), target, answer.text)

    def firing(self) -> set[str]:
        """Return the names of the rules whose expression finds something now."""
        evaluator = Evaluator(self.scrapes, time.time())
        return {rule.name for rule in load_rules() if evaluator.firing(rule.expression)}


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="monitor")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Monitor]:
    """Yield a monitor of a cluster with a topic, records and a group; it has scraped twice."""
    data = tmp_path_factory.mktemp("metrics")
    settings = {
        "zookeeper.session.timeout.ms": "6000",
        "group.lag.interval.ms": "100",
        "metrics.partitions.max": "5",
    }
    async with Cluster(data, coordinators=1, settings=settings) as cluster:
        await cluster.client.create_topic(NewTopic(TOPIC, 6, 3, configs=STRICT))
        await cluster.in_sync(TOPIC, 3)
        await cluster.active_coordinator()
        monitor = Monitor(cluster)
        await monitor.scrape()
        await use(cluster)
        await wait_until(lambda: shows_lag(cluster), "the lag is measured")
        await monitor.scrape()
        yield monitor


async def use(cluster: Cluster) -> None:
    """Produce, fetch, wait for records in vain, and commit an offset."""
    records = f"/v1/topics/{TOPIC}/partitions/0/records"
    leader = await cluster.leader_of(TOPIC, 0)
    for value in ("one", "two", "three"):
        body = {"records": [{"value": value}]}
        (await cluster.post(leader, records, json=body)).raise_for_status()
    (await cluster.get(leader, records, offset=0)).raise_for_status()
    (await cluster.get(leader, records, offset=3, wait_ms=100)).raise_for_status()
    row = {"topic": TOPIC, "partition": 0, "offset": 1}
    coordinator = await cluster.active_coordinator()
    (
        await cluster.post(coordinator, "/v1/groups/billing/offsets", json={"offsets": [row]})
    ).raise_for_status()


async def shows_lag(cluster: Cluster) -> bool:
    text = (await cluster.get(await cluster.active_coordinator(), "/metrics")).text
    return 'leadline_coordinator_group_lag_records{group="billing"} 2.0' in text


@pytest.mark.parametrize("service", ["Broker", "Controller", "Coordinator"])
async def test_a_service_serves_what_is_documented_and_nothing_else(
    monitor: Monitor, service: str
) -> None:
    text = monitor.texts[f"{service.lower()}-1"]
    served = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type)
        for family in text_string_to_metric_families(text)
        if family.name.startswith("leadline_") and not family.name.endswith("_created")
    }

    listed = [*documented()["Every service"], *documented()[service]]
    assert served == {(one.name, one.kind) for one in listed if one.name not in WITH_TLS}


async def test_metrics_have_the_labels_that_are_documented(monitor: Monitor) -> None:
    known = labels_by_name(chain.from_iterable(documented().values()))
    target = set(Target("", "").labels())

    wrong = {
        name: labels
        for name in monitor.scrapes.series
        if name in known and (labels := monitor.scrapes.label_names(name) - target) != known[name]
    }

    assert wrong == {}


async def test_every_expression_finds_its_metrics_in_the_scrapes(monitor: Monitor) -> None:
    scraped = {
        name: frozenset(monitor.scrapes.label_names(name)) for name in monitor.scrapes.series
    }
    listed = labels_by_name(chain.from_iterable(documented().values()))
    known = {name: listed[name] for name in EMPTY_UNTIL_IT_HAPPENS | WITH_TLS} | scraped
    expressions = [rule.expression for rule in load_rules()] + expressions_of(load_dashboard())

    problems = {
        problem
        for expression in expressions
        for problem in problems_of_expression(expression, known)
    }

    assert problems == set()


async def test_every_panel_has_a_value_or_none_for_a_reason(monitor: Monitor) -> None:
    evaluator = Evaluator(monitor.scrapes, time.time())
    empty = [one for one in expressions_of(load_dashboard()) if not evaluator.firing(one)]

    # Nobody was refused, no request failed, and no group was rebalanced.
    for expression in empty:
        assert any(word in expression for word in ("refused", "5..", "rebalance", "http_wait")), (
            expression
        )


async def test_a_healthy_cluster_fires_nothing(monitor: Monitor) -> None:
    assert monitor.firing() - NOT_FOR_THIS_MACHINE - {"LeadlineMetricsOmitted"} == set()


async def test_what_is_beyond_the_limit_is_left_out_and_said(monitor: Monitor) -> None:
    evaluator = Evaluator(monitor.scrapes, time.time())

    shown = evaluator.firing("count by (instance) (leadline_partition_log_end_offset)")
    assert set(shown.values()) == {5}
    assert "LeadlineMetricsOmitted" in monitor.firing()
    omitted = evaluator.firing('leadline_metrics_omitted{kind="partitions"} == 1')
    assert len(omitted) == 3
    assert set(evaluator.firing("leadline_topic_replicas").values()) == {6}


async def test_a_long_poll_is_no_latency(monitor: Monitor) -> None:
    evaluator = Evaluator(monitor.scrapes, time.time())
    route = '{route="/v1/topics/{topic}/partitions/{partition}/records",method="GET"}'

    waited = evaluator.firing(f"sum by (route) (leadline_http_wait_seconds_count{route})")
    served = evaluator.firing(f"sum by (route) (leadline_http_request_seconds_count{route})")

    assert list(waited.values()) == [1]
    assert list(served.values()) == [2]


async def test_after_the_kill_of_a_broker_its_alerts_fire_and_no_others(monitor: Monitor) -> None:
    cluster = monitor.cluster
    led = sum(row["role"] == "leader" for row in await cluster.replicas(KILLED))
    await cluster.kill(KILLED)
    async with asyncio.timeout(60):
        while not monitor.firing() >= AFTER_A_KILL:
            await monitor.scrape()
            await asyncio.sleep(0.2)

    firing = monitor.firing() - NOT_FOR_THIS_MACHINE - {"LeadlineMetricsOmitted"}

    assert firing == AFTER_A_KILL
    evaluator = Evaluator(monitor.scrapes, time.time())
    elected = evaluator.firing('sum(leadline_controller_elections_total{reason="isr"})')
    assert list(elected.values()) == [led]
    down = evaluator.firing('up{job="leadline-broker"} == 0')
    assert [dict(labels)["instance"] for labels in down] == [KILLED]

"""How Leadline's state is shown as resources of the v3 API."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from starlette.requests import Request

from leadline_broker.api.v3 import config_changes, lags, reassignments, removal, replica_status
from leadline_broker.api.v3.configs import alter_many_topic_configs
from leadline_broker.api.v3.errors import OUTCOME_HEADER, REFUSED, V3Error, response_of
from leadline_broker.api.v3.groups import _STATES, group_of
from leadline_broker.api.v3.layer import PREFIX_KEY
from leadline_broker.api.v3.links import Links, base_of
from leadline_broker.api.v3.models.cluster import BrokersToRemove
from leadline_broker.api.v3.models.configs import ConfigChange, ManyTopicConfigChanges
from leadline_broker.api.v3.models.topics import KafkaNewTopic, PartitionsCount
from leadline_broker.api.v3.routes import ClusterView, V3Context
from leadline_broker.api.v3.shown_configs import cluster_configs, default_of, topic_configs
from leadline_broker.api.v3.topics import add_partitions, list_topics, wanted_topic
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.replication.partition import FollowerInfo, ReplicaInfo
from leadline_client.errors import ConnectionLost, IdempotencyKeyReused, LeaderNotAvailable
from leadline_client.wire import GroupState
from leadline_common.api.brokers import DrainBody
from leadline_common.api.configs import ConfigBody, ConfigsBody
from leadline_common.api.group_models import GroupBody, GroupSummary, LagRow, MemberBody
from leadline_common.api.models import changed_example, example_of
from leadline_common.api.partitions import AddedPartitions
from leadline_common.api.reassignments import Reassignment
from leadline_common.api.tasks import TaskBody
from leadline_common.rpc import PartitionRow, TopicRows
from leadline_common.tasks import TaskState
from tests.unit.broker.v3.told_metadata import told

LINKS = Links("http://b/v3", "c")
NOW = 1_767_225_600_123


def row(number: int, leader: int = 1) -> PartitionRow:
    return PartitionRow(number, leader, 3, (1, 2), (1, 2, 3), 0)


class _Context:
    """What the resources need of a broker: metadata of `orders` with two partitions."""

    def __init__(self) -> None:
        self.metadata = ClusterMetadataCache()
        self.metadata.apply(told(1, [TopicRows("orders", "id", {}, [row(0), row(1)])]))
        self.state = self
        self.broker_id = 7

    def now_ms(self) -> int:
        return NOW


@pytest.fixture
def cluster() -> ClusterView:
    return ClusterView(cast("V3Context", _Context()), LINKS, {})


def request(**scope: Any) -> Request:
    headers = [(name.encode(), value.encode()) for name, value in scope.pop("headers", {}).items()]
    return Request(
        {
            "type": "http",
            "scheme": "http",
            "server": ("127.0.0.1", 9091),
            "path": "/v3/clusters",
            "query_string": b"",
            "headers": headers,
            **scope,
        }
    )


def test_links_begin_with_the_advertised_url_or_the_address_that_was_used() -> None:
    host, alias = {"host": "proxy:80"}, {PREFIX_KEY: "/kafka/v3"}
    forwarded = host | {"x-forwarded-proto": "https", "x-forwarded-host": "api.example, inner"}
    assert base_of(request(headers=host), "https://a.example/") == "https://a.example/v3"
    assert base_of(request(headers=host, **alias), "") == "http://proxy:80/kafka/v3"
    assert base_of(request(headers=forwarded), "") == "https://api.example/v3"
    assert base_of(request(headers=host, root_path="/x"), "") == "http://proxy:80/x/v3"


def test_segments_of_links_are_encoded() -> None:
    assert LINKS.url("consumer-groups", "a b/ü") == (
        "http://b/v3/clusters/c/consumer-groups/a%20b%2F%C3%BC"
    )
    assert LINKS.crn("topic=t", "partition=0") == "crn:///kafka=c/topic=t/partition=0"


class _Draining:
    """A controller that starts the first drain, and whose second answer is lost."""

    def __init__(self) -> None:
        self.started = 0

    async def change(self, *_: Any, body: DrainBody, **__: Any) -> None:
        if not body.dry_run:
            self.started += 1
            if self.started > 1:
                raise ConnectionLost("the connection broke")


async def test_a_removal_of_brokers_whose_outcome_is_unknown_says_so(cluster: ClusterView) -> None:
    cast("Any", cluster.context).controller = _Draining()
    with pytest.raises(V3Error) as raised:
        await removal.remove_brokers(cluster, BrokersToRemove(broker_ids=[1, 2]))
    response = response_of(raised.value)
    assert response.headers[OUTCOME_HEADER] == "unknown"
    message = raised.value.message
    assert message.startswith("brokers [1] are being removed; broker 2: the outcome is unknown")


async def test_a_topic_that_is_deleted_while_topics_are_listed_is_left_out(
    cluster: ClusterView,
) -> None:
    metadata = cluster.metadata
    names = [f"t{number:03}" for number in range(400)]  # more than are encoded in one turn
    topics = [TopicRows(name, "id", {}, [row(0)]) for name in names]
    metadata.apply(told(2, topics, full=False))
    listing = asyncio.create_task(list_topics(cluster))
    await asyncio.sleep(0)  # the list has begun
    metadata.apply(told(3, [], deleted=["orders", "t399"], full=False))
    shown = [topic["topic_name"] for topic in json.loads(bytes((await listing).body))["data"]]
    assert shown == ["orders", *names[:-1]], "what was encoded before stays"


class _Growing:
    """A controller that adds partitions to a topic of two replicas."""

    async def change(self, *_: Any, **__: Any) -> AddedPartitions:
        return AddedPartitions(
            topic="new", topic_id="id", partitions=3, added={"2": [1, 2]}, dry_run=False
        )


async def test_added_partitions_are_no_error_where_the_topic_is_not_known_yet(
    cluster: ClusterView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline_broker.api.v3.lookup.SETTLING_MS", 1)
    cast("Any", cluster.context).controller = _Growing()
    topic = await add_partitions(cluster, "new", PartitionsCount(partitions_count=3))
    assert (topic.topic_name, topic.partitions_count, topic.replication_factor) == ("new", 3, 2)


@pytest.mark.parametrize("count", [-1, 0, 200_001, 2**31 - 1])
async def test_a_number_of_partitions_that_no_topic_can_have_is_refused(
    cluster: ClusterView, count: int
) -> None:
    cast("Any", cluster.context).controller = _Growing()
    with pytest.raises(V3Error, match="partitions_count must be from 1 to 200000") as raised:
        await add_partitions(cluster, "new", PartitionsCount(partitions_count=count))
    assert raised.value.code == REFUSED


def lag_row(partition: int, committed: int | None, end: int | None, **more: Any) -> LagRow:
    return LagRow(
        topic=more.get("topic", "orders"),
        partition=partition,
        committed=committed,
        end=end,
        lag=None,
        member=more.get("member"),
    )


def member(**changes: Any) -> MemberBody:
    [shown] = example_of(GroupBody)["members"]
    return MemberBody.model_validate({**shown, **changes})


def test_lags_are_those_of_committed_partitions_that_exist(cluster: ClusterView) -> None:
    rows = [
        lag_row(1, 3, 10, member="m"),
        lag_row(0, 12, 10),
        lag_row(5, 1, None),
        lag_row(0, 1, None, topic="deleted"),
    ]
    found = lags.known_lags(cluster, rows, {"m": member(id="m")})
    assert [(one.partition, one.lag) for one in found] == [(0, 0), (1, 7)]
    assert lags.known_lags(cluster, [lag_row(0, None, 5)], {}) == []
    with pytest.raises(LeaderNotAvailable):
        lags.known_lags(cluster, [lag_row(0, 1, None)], {})


def test_a_summary_names_the_greatest_lag_and_its_member(cluster: ClusterView) -> None:
    owner = member(id="m", client_id="app", instance_id="i")
    rows = [
        lags.PartitionLag("orders", 0, 0, 5, None),
        lags.PartitionLag("orders", 1, 0, 9, owner),
        lags.PartitionLag("orders", 2, 0, 9, None),
    ]
    summary = lags.summary_of(cluster, "g", rows)
    assert (summary.total_lag, summary.max_lag, summary.max_lag_partition_id) == (23, 9, 1)
    assert (summary.max_lag_consumer_id, summary.max_lag_instance_id) == ("m", "i")
    assert summary.max_lag_consumer.related.endswith("/g/consumers/m")
    nobody = lags.summary_of(cluster, "g", rows[:1])
    assert (nobody.max_lag_consumer_id, nobody.max_lag_client_id) == ("", "")
    shown = lags.lag_of(cluster, "g", rows[0])
    assert (shown.consumer_id, shown.instance_id, shown.client_id) == ("", None, "")


def test_every_state_of_a_group_has_a_name() -> None:
    assert set(_STATES) == set(GroupState)


@pytest.mark.parametrize(
    ("generation", "members", "simple"), [(0, False, True), (3, False, False), (1, True, False)]
)
def test_a_group_that_never_had_members_is_simple(
    cluster: ClusterView, generation: int, members: bool, simple: bool
) -> None:
    group = changed_example(GroupSummary, generation=generation)
    shown = group_of(cluster, group, has_members=members)
    assert (shown.is_simple, shown.state) == (simple, "STABLE")
    assert shown.coordinator.related == "http://b/v3/clusters/c/brokers/7"
    assert shown.consumer == shown.consumers


def test_a_reassignment_shows_all_that_is_left_to_do() -> None:
    running = changed_example(Reassignment, current=[5, 0, 1], target=[5, 6, 7], adding=[6])
    shown = reassignments.shown(LINKS, running)
    assert (shown.adding_replicas, shown.removing_replicas) == ([6, 7], [0, 1])
    assert shown.metadata.resource_name.endswith("/partition=0/reassignment")


def task(number: int, broker: int = 1, state: TaskState = TaskState.RUNNING, **more: Any) -> Any:
    details = {"broker": broker, "leaders_only": more.pop("leaders_only", False)}
    values = {"id": f"{number}", "kind": "drain", "created_at_ms": NOW + number, "state": state}
    return changed_example(TaskBody, **{**values, "details": details, **more})


def test_the_latest_drain_of_replicas_is_the_removal_of_a_broker() -> None:
    tasks = [task(3), task(1), task(2, broker=2), task(9, leaders_only=True)]
    tasks.append(task(10, kind="reassign"))
    found = removal.latest_removals(tasks)
    assert {broker: one.id for broker, one in found.items()} == {1: "3", 2: "2"}


@pytest.mark.parametrize(
    ("state", "status", "sub_task"),
    [
        (TaskState.PREPARING, "IN_PROGRESS", "IN_PROGRESS"),
        (TaskState.CANCELLING, "IN_PROGRESS", "IN_PROGRESS"),
        (TaskState.DONE, "SUCCESS", "COMPLETED"),
        (TaskState.CANCELLED, "FAILED", "ERROR"),
        (TaskState.FAILED, "FAILED", "ERROR"),
    ],
)
def test_a_task_shows_its_progress(
    cluster: ClusterView, state: TaskState, status: str, sub_task: str
) -> None:
    ended = NOW + 1_000 if state.is_over else None
    shown = removal.task_of(cluster, 1, task(0, state=state, finished_at_ms=ended))
    assert shown.task_status == status
    assert list(shown.sub_task_statuses.values()) == [sub_task]
    assert (shown.error_code is None) is (status != "FAILED")
    assert shown.created_at == "2026-01-01T00:00:00.123Z"
    assert shown.updated_at == ("2026-01-01T00:00:01.123Z" if ended else shown.created_at)


def config(**changes: Any) -> ConfigBody:
    [shown] = example_of(ConfigsBody)["configs"]
    return ConfigBody.model_validate({**shown, **changes})


def test_settings_are_text_and_sensitive_ones_have_no_value(cluster: ClusterView) -> None:
    [open_one] = topic_configs(cluster, "orders", [config()])
    assert (open_one.value, open_one.source) == ("86400000", "DYNAMIC_TOPIC_CONFIG")
    assert [one.source for one in open_one.synonyms] == ["DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"]
    [secret] = topic_configs(cluster, "orders", [config(sensitive=True)])
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert {one.value for one in secret.synonyms} == {None}


class _Remembering:
    """A controller that takes an `Idempotency-Key` for one request, as the real one does."""

    def __init__(self) -> None:
        self.requests: dict[str, tuple[str, str]] = {}
        self.changed = 0

    async def get(self, *_: Any) -> ConfigsBody:
        return ConfigsBody.model_validate(example_of(ConfigsBody))

    async def change(self, _: str, path: str, *args: Any, body: Any, headers: Any) -> None:
        del args
        request = path, body.model_dump_json()
        known = self.requests.setdefault(headers["Idempotency-Key"], request)
        if known != request:
            raise IdempotencyKeyReused("this key was used for another request")
        self.changed += 1


async def test_one_key_covers_the_settings_of_several_topics(cluster: ClusterView) -> None:
    controller = cast("Any", cluster.context).controller = _Remembering()
    name = example_of(ConfigsBody)["configs"][0]["name"]
    cluster = replace(cluster, idempotency={"Idempotency-Key": "k"})
    wanted = ManyTopicConfigChanges.model_validate(
        {
            "data": [
                {"topic_name": topic, "configs": [{"name": name, "value": value}]}
                for topic, value in (("orders", "1"), ("payments", "1"), ("orders", "2"))
            ]
        }
    )
    for _ in range(2):  # a repeated request has the same keys
        assert (await alter_many_topic_configs(cluster, wanted)).status_code == 204
    assert (len(controller.requests), controller.changed) == (3, 6)


def test_the_default_of_a_setting_is_what_the_topic_inherits(cluster: ClusterView) -> None:
    [shown] = topic_configs(cluster, "orders", [default_of(config())])
    assert (shown.value, shown.is_default) == ("604800000", True)
    assert [one.source for one in shown.synonyms] == ["DEFAULT_CONFIG"]


def test_settings_of_the_cluster_are_those_that_were_set_for_it(cluster: ClusterView) -> None:
    found = [
        config(name="a"),
        config(name="c", source="cluster"),
        config(name="b", source="cluster"),
    ]
    assert [one.name for one in cluster_configs(cluster, found)] == ["b", "c"]


def test_changes_are_sets_unless_they_delete() -> None:
    changes = config_changes.changes_of(
        [ConfigChange(name="a", value="1"), ConfigChange(name="b", operation="DELETE", value="2")]
    )
    assert (changes.set, changes.remove) == ({"a": "1"}, ["b"])
    for bad in (
        [ConfigChange(name="a")],
        [ConfigChange(name="a", operation="SET")],
        [ConfigChange(name="a", value="1"), ConfigChange(name="a", operation="DELETE")],
        [ConfigChange(name="a", value="1")] * 2,
    ):
        with pytest.raises(V3Error) as raised:
            config_changes.changes_of(bad)
        assert raised.value.code == REFUSED


@pytest.mark.parametrize("given", [{"0": [1, 2]}, [{"partition_id": 0, "broker_ids": [1, 2]}]])
def test_assignments_are_maps_or_lists_and_decide_the_counts(given: Any) -> None:
    new = KafkaNewTopic(
        topic_name="t", replicas_assignments=given, partitions_count=7, replication_factor=9
    )
    wanted = wanted_topic(new)
    assert wanted.replica_assignment == {"0": [1, 2]}
    assert (wanted.partitions, wanted.replication_factor) == (None, None)


@pytest.mark.parametrize("count", [None, -1])
def test_counts_that_are_left_out_or_minus_one_are_the_clusters_defaults(count: int | None) -> None:
    new = KafkaNewTopic(topic_name="t", partitions_count=count, replication_factor=count)
    wanted = wanted_topic(new)
    assert (wanted.partitions, wanted.replication_factor) == (None, None)


def replica(end: int, *followers: FollowerInfo) -> ReplicaInfo:
    return ReplicaInfo(
        topic="orders",
        topic_id="id",
        partition=0,
        role="leader" if followers else "follower",
        role_epoch=3,
        leader_epoch=3,
        log_start_offset=2,
        log_end_offset=end,
        durable_end_offset=end,
        high_watermark=end,
        isr=None,
        log_dir="",
        size_bytes=0,
        followers=followers or None,
    )


def test_the_status_of_a_replica_joins_its_own_report_and_the_leaders(cluster: ClusterView) -> None:
    known = FollowerInfo(broker=2, log_end_offset=8, last_fetch_ms=50, last_caught_up_ms=40)
    gone = FollowerInfo(broker=3, log_end_offset=6, last_fetch_ms=-1, last_caught_up_ms=30)
    reports = {
        ("orders", 0, 1): replica(9, known, gone),
        ("orders", 0, 2): replica(9),
    }
    first, second, third = (
        replica_status.status_of(cluster, "orders", row(0), broker, reports) for broker in (1, 2, 3)
    )
    assert (first.is_leader, first.is_caught_up, first.last_fetch_time_ms) == (True, True, NOW)
    assert (second.is_in_isr, second.is_caught_up, second.log_start_offset) == (True, True, 2)
    assert (second.last_caught_up_time_ms, second.last_fetch_time_ms) == (40, 50)
    assert (third.is_in_isr, third.is_isr_eligible, third.is_caught_up) == (False, False, False)
    assert (third.log_start_offset, third.log_end_offset) == (-1, 6)

"""The operations of a client as flows: routing, retries, deadlines, decoding.

`ClientCore` does no IO. The blocking and the asynchronous client run the flows
that its methods return.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from leadline_client.cache import MetadataCache
from leadline_client.calls import Call, Caller
from leadline_client.errors import UnknownTopic
from leadline_client.flows import Flow
from leadline_client.payloads import (
    FetchedBatches,
    OutgoingRecord,
    ProducerIdentity,
    decoded,
    document_of,
    epoch_end,
    fetch_result,
    fetched_batches,
    found_offset,
    json_body,
    partition_offsets,
    produce_result,
    producer_identity,
    record_json,
)
from leadline_client.retry import RetryPolicy
from leadline_client.targets import (
    AnyBroker,
    GroupCoordinator,
    PartitionLeader,
    PartitionReplica,
    Target,
)
from leadline_client.transport import JSON, OCTETS, Response
from leadline_client.whole_metadata import WholeMetadata, fit_in_url
from leadline_client.wire import (
    Acks,
    BrokerInfo,
    ControllerInfo,
    EpochEnd,
    FetchResult,
    LogPosition,
    Metadata,
    PartitionOffsets,
    ProduceResult,
    ReplicaChoice,
    TopicInfo,
    TopicPartition,
)

DEFAULT_MAX_BYTES = 1 << 20
_ANSWER_MARGIN_S = 2.0


class ClientCore:
    """The operations of a client of one cluster.

    `clock` counts seconds (monotonic), `random` returns numbers in [0, 1).
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        policy: RetryPolicy,
        *,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.bootstrap = tuple(bootstrap)
        self.policy = policy
        self.cache = MetadataCache()
        self._whole = WholeMetadata(self.cache)
        self.coordinator = GroupCoordinator()
        self._any_broker = AnyBroker(bootstrap, self.cache, random)
        self._replicas: dict[tuple[TopicPartition, str | None, str | None], PartitionReplica] = {}
        self._clock = clock
        self._random = random
        self._caller = Caller(self._any_broker, self.cache, policy, clock=clock, random=random)

    def metadata(self, topics: Collection[str] | None = None) -> Flow[Metadata]:
        """Return one snapshot: brokers, controller, and `topics` (None: all) with their leaders.

        Topics that do not exist are left out.
        """
        if topics is None or not fit_in_url(topics):
            return (yield from self._whole.read(self._get_metadata, topics))
        names = tuple(topics)
        response = yield from self._get_metadata({"topics": ",".join(names)})
        document = decoded(Metadata.from_json, document_of(response))
        self.cache.update(document, names)
        return self.cache.snapshot(document)

    def _get_metadata(self, params: Mapping[str, str]) -> Flow[Response]:
        call = Call("GET", "/v1/metadata", params, repeatable=True)
        return (yield from self.call(self._any_broker, call))

    def list_topics(self) -> Flow[tuple[TopicInfo, ...]]:
        """Return every topic with its partitions, by name."""
        document = yield from self.metadata()
        return tuple(document.topics[name] for name in sorted(document.topics))

    def describe(self, topic: str) -> Flow[TopicInfo]:
        """Return leaders, ISR and replicas of one topic; raises UnknownTopic."""
        document = yield from self.metadata([topic])
        if topic not in document.topics:
            raise UnknownTopic(f"topic {topic!r} does not exist")
        return document.topics[topic]

    def brokers(self) -> Flow[tuple[BrokerInfo, ...]]:
        """Return the live brokers, by id."""
        document = yield from self.metadata()
        return tuple(document.brokers[broker] for broker in sorted(document.brokers))

    def controller(self) -> Flow[ControllerInfo | None]:
        """Return the active controller, or None if the brokers know of none."""
        document = yield from self.metadata()
        return document.controller

    def find_coordinator(self) -> Flow[dict[str, Any]]:
        """Return the brokers and the group coordinator (`POST /v1/consult`).

        This is the ConsultRequest of the Consumer Coordinator design.
        """
        headers = {"content-type": JSON}
        call = Call("POST", "/v1/consult", headers=headers, body=b"{}", repeatable=True)
        return (yield from self.ask_any_broker(call))

    def ask_any_broker(self, call: Call) -> Flow[dict[str, Any]]:
        """Send `call` to any broker, as `document` does."""
        return (yield from self.document(self._any_broker, call))

    def random_key(self) -> str:
        """Return 128 random bits as text."""
        return "".join(f"{int(self._random() * (1 << 32)):08x}" for _ in range(4))

    def offsets(
        self, topic: str, partition: int, *, timestamp: int | None = None
    ) -> Flow[PartitionOffsets]:
        """Return the readable range of a partition, as its leader knows it."""
        document = yield from self._offsets(topic, partition, timestamp)
        return decoded(partition_offsets, document)

    def offset_for_timestamp(self, topic: str, partition: int, timestamp: int) -> Flow[int | None]:
        """Return the first offset with that timestamp (Unix ms) or a later one, or None."""
        return found_offset((yield from self._offsets(topic, partition, max(0, timestamp))))

    def position_for_timestamp(
        self, topic: str, partition: int, timestamp: int
    ) -> Flow[LogPosition]:
        """Return the position of the first record of that time or later, else of the end."""
        # No record is older than 1970, and negative numbers mean the ends of the log to a broker.
        document = yield from self._offsets(topic, partition, max(0, timestamp))
        offset, known = found_offset(document), decoded(partition_offsets, document)
        return LogPosition(known.high_watermark if offset is None else offset, known.last_epoch)

    def epoch_end(self, topic: str, partition: int, epoch: int) -> Flow[EpochEnd]:
        """Return where a leader epoch ends in the log of the leader (KIP-320)."""
        call = Call("GET", f"{_path(topic, partition)}/epochs/{epoch}", repeatable=True)
        leader = PartitionLeader(self.cache, topic, partition)
        document = yield from self.document(leader, call)
        return decoded(epoch_end, document)

    def new_producer_id(self) -> Flow[ProducerIdentity]:
        """Allocate a producer id and epoch, for idempotent batches."""
        call = Call("POST", "/v1/producer-ids", repeatable=True)
        document = yield from self.document(self._any_broker, call)
        return decoded(producer_identity, document)

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[OutgoingRecord],
        *,
        acks: Acks = "all",
        retry_unknown: bool = False,
        timeout_s: float | None = None,
    ) -> Flow[ProduceResult]:
        """Append `records`, as JSON; they get consecutive offsets.

        After an unknown outcome the records are sent again only with `retry_unknown`, which
        accepts that they may be in the log twice.
        """
        body = json_body(
            {"records": [record_json(record) for record in records], "format": "base64"}
        )
        return (
            yield from self._produce(topic, partition, body, JSON, acks, retry_unknown, timeout_s)
        )

    def produce_batches(
        self,
        topic: str,
        partition: int,
        batches: bytes,
        *,
        acks: Acks = "all",
        idempotent: bool = False,
        timeout_s: float | None = None,
    ) -> Flow[ProduceResult]:
        """Append whole v2 batches unchanged.

        `idempotent`: the batches carry a producer id and sequence numbers. The broker
        recognises duplicates by them, so the client retries after an unknown outcome.
        """
        return (
            yield from self._produce(topic, partition, batches, OCTETS, acks, idempotent, timeout_s)
        )

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        min_bytes: int = 1,
        wait_ms: int = 0,
        last_epoch: int | None = None,
        replica: ReplicaChoice = "leader",
        rack: str | None = None,
    ) -> Flow[FetchResult]:
        """Read records from `offset` up to the high watermark, as JSON.

        With `last_epoch`, the leader epoch of the record before `offset`, this raises LogTruncated
        if the log no longer has that record. `replica`: `any` also reads from in-sync followers,
        up to their own high watermark, and from those in `rack` first.
        """
        params = _fetch_params(offset, max_bytes, min_bytes, wait_ms, last_epoch)
        params["format"] = "base64"
        target = self._read_target(TopicPartition(topic, partition), replica, rack)
        response = yield from self._fetch(target, topic, partition, params, JSON, wait_ms)
        return decoded(fetch_result, document_of(response))

    def fetch_batches(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        min_bytes: int = 1,
        wait_ms: int = 0,
        last_epoch: int | None = None,
        topic_id: str | None = None,
        replica: ReplicaChoice = "leader",
        rack: str | None = None,
    ) -> Flow[FetchedBatches]:
        """Read whole v2 batches as they are stored; the first one may begin before `offset`.

        For `last_epoch`, `replica` and `rack` see `fetch`. With `topic_id`, this raises
        TopicIdMismatch once metadata shows that the topic was recreated.
        """
        params = _fetch_params(offset, max_bytes, min_bytes, wait_ms, last_epoch)
        target = self._read_target(TopicPartition(topic, partition), replica, rack, topic_id)
        response = yield from self._fetch(target, topic, partition, params, OCTETS, wait_ms)
        return decoded(fetched_batches, response)

    def call(self, target: Target, call: Call, timeout_s: float | None = None) -> Flow[Response]:
        """Send `call` to `target` until it answers, refuses for good, or the time is up."""
        return self._caller.call(target, call, timeout_s)

    def refresh(self, target: Target) -> Flow[None]:
        """Look `target` up at one broker after the other, until one answers."""
        return self._caller.refresh(target)

    def document(
        self, target: Target, call: Call, timeout_s: float | None = None
    ) -> Flow[dict[str, Any]]:
        """Send `call` as `call` does, and return the JSON object of the response."""
        return document_of((yield from self.call(target, call, timeout_s)))

    def _offsets(self, topic: str, partition: int, timestamp: int | None) -> Flow[dict[str, Any]]:
        params = {} if timestamp is None else {"timestamp": str(timestamp)}
        call = Call("GET", f"{_path(topic, partition)}/offsets", params, repeatable=True)
        return (yield from self.document(PartitionLeader(self.cache, topic, partition), call))

    def _produce(
        self,
        topic: str,
        partition: int,
        body: bytes,
        content_type: str,
        acks: Acks,
        repeatable: bool,
        timeout_s: float | None,
    ) -> Flow[ProduceResult]:
        params = {"acks": acks, "timeout_ms": str(int(self.policy.request_timeout_s * 1000))}
        headers = {"content-type": content_type}
        path = f"{_path(topic, partition)}/records"
        call = Call("POST", path, params, headers, body, repeatable, _ANSWER_MARGIN_S)
        leader = PartitionLeader(self.cache, topic, partition)
        return decoded(produce_result, (yield from self.document(leader, call, timeout_s)))

    def _read_target(
        self,
        topic_partition: TopicPartition,
        replica: ReplicaChoice,
        rack: str | None,
        topic_id: str | None = None,
    ) -> Target:
        """Return the leader, or the replica that this client reads from."""
        if replica == "leader":
            return PartitionLeader(self.cache, *topic_partition, topic_id)
        key = (topic_partition, rack, topic_id)
        if key not in self._replicas:
            self._replicas[key] = PartitionReplica(
                self.cache,
                *topic_partition,
                topic_id,
                rack=rack,
                clock=self._clock,
                random=self._random(),
            )
        return self._replicas[key]

    def _fetch(
        self,
        target: Target,
        topic: str,
        partition: int,
        params: Mapping[str, str],
        accept: str,
        wait_ms: int,
    ) -> Flow[Response]:
        call = Call(
            "GET",
            f"{_path(topic, partition)}/records",
            params,
            {"accept": accept},
            repeatable=True,
            server_wait_s=wait_ms / 1000,
        )
        return (yield from self.call(target, call))


def _path(topic: str, partition: int) -> str:
    return f"/v1/topics/{_q(topic)}/partitions/{partition}"


def _q(segment: str) -> str:
    return quote(segment, safe="")


def _fetch_params(
    offset: int, max_bytes: int, min_bytes: int, wait_ms: int, last_epoch: int | None
) -> dict[str, str]:
    params = {
        "offset": str(offset),
        "max_bytes": str(max_bytes),
        "min_bytes": str(min_bytes),
        "wait_ms": str(wait_ms),
    }
    return params if last_epoch is None else params | {"last_epoch": str(last_epoch)}

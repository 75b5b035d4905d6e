"""What the cluster says of itself: topics, their ids, leaders, and where partitions begin and end.

Any broker or controller answers about metadata, any broker about the offsets of all partitions. A
question goes to one address after the other, beginning with the one that answered last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from leadline_client.wire import TopicPartition
from leadline_spark.cluster import transport
from leadline_spark.cluster.transport import Answer, Refusal, Unreachable
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options

_LONGEST_TRY_S = 10.0
_TOKEN = re.compile(r"[!-~]+")
_LOOKUP_S = 0.03
"""How much longer a broker may take for each time that it looks up in a log."""


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """Who leads a partition: its base URL, None where nobody does, and the leader epoch."""

    url: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic's id (32 hexadecimal digits) and its partitions' leaders."""

    topic_id: str
    partitions: Mapping[int, PartitionLeader]


@dataclass(frozen=True, slots=True)
class Metadata:
    """One snapshot of the cluster; `version` never goes backwards."""

    version: int
    controller: str | None
    brokers: Mapping[int, str]
    topics: Mapping[str, TopicMetadata]

    def leader(self, topic_partition: TopicPartition) -> PartitionLeader:
        """Return a partition's leader, a leader without address where there is none."""
        topic = self.topics.get(topic_partition.topic)
        found = topic.partitions.get(topic_partition.partition) if topic else None
        return found or PartitionLeader(None, -1)


@dataclass(frozen=True, slots=True)
class LeaderOffsets:
    """The readable range [start, end) of a partition, as its leader knows it.

    `found` is the offset that was asked for by time, None where no record is that new.
    """

    start: int
    end: int
    leader: PartitionLeader
    found: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetsUnavailable:
    """Why a partition's offsets are unknown for now: `message`, with the leader's code."""

    error_code: int
    message: str


OffsetsAnswer = dict[TopicPartition, LeaderOffsets | OffsetsUnavailable]


@dataclass(frozen=True, slots=True)
class Connection:
    """How a cluster is reached: small, and pickled into every task. It shows no token."""

    bootstrap: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    timeout_s: float = transport.DEFAULT_TIMEOUT_S

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options. Raises LeadlineSparkError where there is no address."""
        options.required("bootstrap")
        addresses = tuple(_url(name) for name in options.names("bootstrap"))
        timeout_ms = options.number("requestTimeoutMs") or 30_000
        return cls(addresses, _token(options.text("token")), timeout_ms / 1_000)


def _token(text: str | None) -> str | None:
    """Return a token as headers carry it, without the line end of the file that it came from."""
    token = (text or "").strip()
    if token and not _TOKEN.fullmatch(token):
        # Not shown, and found out here: an HTTP library would say so with the token in its text.
        message = "token holds blanks, or what is not ASCII: no header can carry it."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
    return token or None


def _url(address: str) -> str:
    """Accept `host:port` too, as jobs for Kafka have it."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


class ClusterClient:
    """Asks whichever known address answers. Not shared among threads."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._brokers: list[str] = []
        self._answered: str | None = None

    def metadata(self, topics: Iterable[str] | None = None) -> Metadata:
        """Return the metadata of these topics, or of all. A topic that does not exist is absent."""
        names = None if topics is None else ",".join(sorted(topics))
        answer = self.ask("GET", "/v1/metadata", params={"topics": names} if names else None)
        metadata = read_metadata(answer.json())
        self._brokers = list(metadata.brokers.values())
        return metadata

    def offsets(self, question: Mapping[str, Any], wait_s: float = 0.0) -> OffsetsAnswer:
        """Ask `POST /v1/offsets`, of any broker for all partitions; see its documentation."""
        body = {**question, "wait_ms": round(wait_s * 1_000)}
        times = sum("timestamp" in row for row in question.get("partitions", ()))
        limit_s = wait_s + times * _LOOKUP_S
        return read_offsets(self.ask_broker("POST", "/v1/offsets", body, limit_s).json())

    def ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        wait_s: float = 0.0,
    ) -> Answer:
        """Ask any known address; `wait_s` is how long the server may hold the answer back.

        Raises LeadlineSparkError: LEADLINE_CLUSTER_UNREACHABLE, LEADLINE_REFUSED.
        """
        return self._first_answer(
            [*self.connection.bootstrap, *self._brokers],
            lambda url: self._try(method, url, path, params, body, wait_s),
        )

    def ask_broker(self, method: str, path: str, body: Any = None, wait_s: float = 0.0) -> Answer:
        """Ask any broker: controllers know nothing of logs. Raises as `ask` does."""
        if not self._brokers:
            self.metadata(["-"])
        return self._first_answer(
            self._brokers, lambda url: self._try(method, url, path, None, body, wait_s)
        )

    def call(
        self,
        method: str,
        url: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> Answer:
        """Ask this very address. Raises Refusal and Unreachable."""
        limit_s, token = self.connection.timeout_s + wait_s, self.connection.token
        return transport.request(method, url, path, params, body, headers, limit_s, token)

    def _try(
        self, method: str, url: str, path: str, params: Any, body: Any, wait_s: float
    ) -> Answer:
        """Ask one of several: a frozen one must not use up the time in which another answers."""
        limit_s = min(self.connection.timeout_s, _LONGEST_TRY_S) + wait_s
        token = self.connection.token
        return transport.request(method, url, path, params, body, None, limit_s, token)

    def _first_answer(self, addresses: list[str], call: Callable[[str], Answer]) -> Answer:
        failures: list[str] = []
        last: Refusal | None = None
        # First whoever answered last.
        for url in sorted(dict.fromkeys(addresses), key=lambda url: url != self._answered):
            try:
                answer = call(url)
            except Unreachable as failure:
                failures.append(str(failure))
            except Refusal as refusal:
                if not refusal.retriable:
                    raise refused(url, refusal) from refusal
                last = refusal
                failures.append(f"{url}: {refusal}")
            else:
                self._answered = url
                return answer
        message = "; ".join(failures) or "no broker is known"
        if last is not None:
            raise LeadlineSparkError("LEADLINE_REFUSED", message) from last
        hint = "Check the option bootstrap and that the cluster is up."
        raise LeadlineSparkError("LEADLINE_CLUSTER_UNREACHABLE", f"{message}. {hint}")


def refused(url: str, refusal: Refusal) -> LeadlineSparkError:
    """Return the error for a refusal that no other address would take back."""
    message = f"{url} refused: {refusal} (HTTP {refusal.status}, outcome {refusal.outcome})"
    fields = refusal.details.get("fields")
    return LeadlineSparkError("LEADLINE_REFUSED", f"{message} {fields}" if fields else message)


def read_metadata(document: Any) -> Metadata:
    """Read the answer of `GET /v1/metadata`."""
    brokers = {row["id"]: row["url"] for row in document["brokers"]}
    controller = document.get("controller") or {}
    topics = {
        name: TopicMetadata(
            topic["topic_id"],
            {
                number: PartitionLeader(brokers.get(leader), epoch)
                for number, leader, epoch, *_ in topic["partitions"]
            },
        )
        for name, topic in document["topics"].items()
    }
    return Metadata(document["version"], controller.get("url"), brokers, topics)


def read_offsets(document: Any) -> OffsetsAnswer:
    """Read the answer of `POST /v1/offsets`."""
    return {
        TopicPartition(row["topic"], row["partition"]): _ends(row) for row in document["partitions"]
    }


def _ends(row: Any) -> LeaderOffsets | OffsetsUnavailable:
    ends = row.get("offsets")
    if row["error_code"] or ends is None:
        return OffsetsUnavailable(row["error_code"], row.get("message") or "no reason given")
    leader = row.get("leader") or {}
    return LeaderOffsets(
        ends["log_start_offset"],
        ends["high_watermark"],
        PartitionLeader(leader.get("url") or None, ends["leader_epoch"]),
        ends.get("offset"),
    )

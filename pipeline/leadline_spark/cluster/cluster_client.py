"""Requests that any node answers: metadata, the offsets of partitions, and administration.

Any broker or controller answers for metadata, any broker for the offsets of all partitions. A
request goes to one address after the other, and first to the one that answered last.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from leadline_client.bootstrap import base_urls
from leadline_client.cache import MetadataCache
from leadline_client.errors import (
    ClusterChanged,
    ConnectionLost,
    InvalidRequest,
    LeadlineError,
    OutcomeUnknown,
    QuotaExceeded,
    Unreachable,
    UnusableClientCredentials,
)
from leadline_client.payloads import error_of
from leadline_client.security import Authenticator, Security
from leadline_client.stdlib_transport import ConnectionPool, StdlibTransport
from leadline_client.transport import CLUSTER_ID_HEADER, JSON, OCTETS, Request, Response
from leadline_client.whole_metadata import WholeMetadata, fit_in_url, only
from leadline_client.wire import Metadata, PartitionInfo, TopicPartition
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options

_LONGEST_TRY_S = 10.0
_WHOLE_ANSWER = 10
"""How many times the limit of one wait a whole answer may take, so that none comes for ever."""
_SHORTEST_PAUSE_S = 0.5
"""Between requests over a quota, if the server does not say how long it takes."""
_TOKEN = re.compile(r"[!-~]+")
_LOOKUP_S = 0.03
"""How much longer a broker may take for each timestamp that it looks up in a log."""

_connections = ConnectionPool()


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition: its base URL, None if there is no leader, and the leader epoch."""

    url: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderOffsets:
    """The readable range [start, end) of a partition, as its leader reports it.

    `found` is the offset for the requested timestamp, None if no record is that new.
    """

    start: int
    end: int
    leader: LeaderAndEpoch
    found: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetsUnavailable:
    """The reason why a partition's offsets are unknown at present, with the leader's error code."""

    error_code: int
    message: str


OffsetsAnswer = dict[TopicPartition, LeaderOffsets | OffsetsUnavailable]


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of a cluster and how to talk to it; pickled into every task.

    The token is not part of its text. The files are read where the task runs.
    """

    bootstrap: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    ca_file: str | None = None
    token_file: str | None = None
    certificate_file: str | None = None

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options. Raises LeadlineSparkError."""
        options.required("bootstrap")
        addresses = _addresses(options.names("bootstrap"))
        timeout_ms = options.number("requestTimeoutMs") or 30_000
        token, token_file = _token(options.text("token")), options.text("token.file") or None
        if token and token_file:
            both = "token and token.file were both given: give one of them."
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", both)
        return cls(
            addresses,
            token,
            timeout_ms / 1_000,
            options.text("ca.file") or None,
            token_file,
            options.text("certificate.file") or None,
        )

    def authenticator(self) -> Authenticator:
        """Read the files; what was not given is as the environment of this process says.

        Raises LeadlineSparkError: LEADLINE_OPTION_INVALID.
        """
        here = Security.from_environment()
        try:
            return Authenticator(
                Security(
                    self.ca_file or here.ca_file,
                    self.token,
                    self.token_file or (None if self.token else here.token_file),
                    self.certificate_file or here.certificate_file,
                )
            )
        except UnusableClientCredentials as problem:
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", problem.message) from problem


def _addresses(names: Iterable[str]) -> tuple[str, ...]:
    """Return the base URLs of addresses. Raises LEADLINE_OPTION_INVALID."""
    try:
        return base_urls(names)
    except InvalidRequest as problem:
        raise LeadlineSparkError(
            "LEADLINE_OPTION_INVALID", f"bootstrap: {problem.message}"
        ) from None


def _token(text: str | None) -> str | None:
    """Return a token as a header carries it, without the line end of the file it came from."""
    token = (text or "").strip()
    if token and not _TOKEN.fullmatch(token):
        # An HTTP library would fail later, with the token in its message.
        message = "token holds blanks, or what is not ASCII: no header can carry it."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
    return token or None


class ClusterClient:
    """Sends requests to whichever known address answers. Not shared among threads.

    It belongs to the cluster `cluster_id`, or else to the one that answered first: another one at
    the same addresses is an error.
    """

    def __init__(self, connection: Connection, cluster_id: str | None = None) -> None:
        self.connection = connection
        self._transport = StdlibTransport(connection.authenticator(), pool=_connections)
        self._whole = WholeMetadata(MetadataCache())
        self._brokers: list[str] = []
        self._answered: str | None = None
        self._cluster_id = cluster_id

    def metadata(self, topics: Iterable[str] | None = None) -> Metadata:
        """Return the metadata of these topics, or of all. A topic that does not exist is absent."""
        names = sorted(topics or ())
        if any(names) and fit_in_url(names):
            answer = document(self.ask("GET", "/v1/metadata", params={"topics": ",".join(names)}))
            self._check_cluster(answer["cluster_id"])
            metadata = Metadata.from_json(answer)
        else:
            metadata = self._whole_metadata()
            metadata = only(metadata, names) if names else metadata
        self._brokers = [broker.url for broker in metadata.brokers.values()]
        return metadata

    def _whole_metadata(self) -> Metadata:
        """Return all topics; after the first time, only what has changed is transferred."""
        known, found = self._whole.known, None
        while found is None:
            response = self.ask("GET", "/v1/metadata", params=self._whole.params(known))
            answer = document(response)
            self._check_cluster(answer["cluster_id"])
            found = self._whole.apply(answer, response.headers.get("etag"), known)
            known = None
        return found

    def offsets(self, query: Mapping[str, Any], wait_s: float = 0.0) -> OffsetsAnswer:
        """Send `query` to `POST /v1/offsets` of any broker, for all partitions together."""
        body = {**query, "wait_ms": round(wait_s * 1_000)}
        lookups = sum("timestamp" in row for row in query.get("partitions", ()))
        limit_s = wait_s + lookups * _LOOKUP_S
        return _offsets(document(self.ask_broker("POST", "/v1/offsets", body, limit_s)))

    def coordinator(self) -> str | None:
        """Return the URL of the active coordinator of consumer groups, None if there is none."""
        found = document(self.ask_broker("POST", "/v1/consult"))["coordinator"]
        return None if found is None else str(found["url"])

    def ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        wait_s: float = 0.0,
    ) -> Response:
        """Send a request to any known address; the server may delay its response by `wait_s`.

        Raises LeadlineSparkError: LEADLINE_CLUSTER_UNREACHABLE, LEADLINE_REFUSED.
        """
        addresses = [*self.connection.bootstrap, *self._brokers]
        return self._first_answer(addresses, method, path, params, body, wait_s)

    def ask_broker(self, method: str, path: str, body: Any = None, wait_s: float = 0.0) -> Response:
        """Send a request that controllers cannot answer to any broker. Raises as `ask` does."""
        if not self._brokers:
            self.metadata(["-"])
        return self._first_answer(self._brokers, method, path, None, body, wait_s)

    def call(
        self,
        method: str,
        url: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> Response:
        """Send a request to this address, once. `body` is bytes, or any JSON value.

        Raises LeadlineError for every response with a status of 400 and above, and where there was
        no response.
        """
        limit_s = self.connection.timeout_s + wait_s
        return self._send(method, url + path, params, body, headers or {}, limit_s)

    def _send(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Response:
        content, content_type = _encoded(body)
        if self._cluster_id is not None:
            headers = {**headers, CLUSTER_ID_HEADER: self._cluster_id}
        texts = {name: str(value) for name, value in (params or {}).items()}
        request = Request(
            *(method, url, texts, {**content_type, **headers}, content, timeout_s),
            total_s=timeout_s * _WHOLE_ANSWER,
        )
        response = self._transport.send(request)
        if response.status >= 400:
            error = error_of(response)
            if isinstance(error, ClusterChanged):
                self._check_cluster(str(error.details["cluster_id"]))
            raise error
        return response

    def _check_cluster(self, found: str) -> None:
        self._cluster_id = self._cluster_id or found
        if found != self._cluster_id:
            raise cluster_changed(self._cluster_id, found)

    def _first_answer(
        self, addresses: list[str], method: str, path: str, params: Any, body: Any, wait_s: float
    ) -> Response:
        """Return the response of any address; wait if all that answer ask to, and time is left."""
        give_up = time.monotonic() + self.connection.timeout_s
        while True:
            try:
                return self._ask_each(addresses, method, path, params, body, wait_s)
            except LeadlineSparkError as failure:
                refusal = failure.__cause__
                if not isinstance(refusal, QuotaExceeded):
                    raise
                pause_s = max(refusal.retry_after_s, _SHORTEST_PAUSE_S) * random.uniform(1.0, 1.2)
                if time.monotonic() + pause_s >= give_up:
                    raise
            time.sleep(pause_s)

    def _ask_each(
        self, addresses: list[str], method: str, path: str, params: Any, body: Any, wait_s: float
    ) -> Response:
        # A node that hangs must not use up the time in which another one could answer.
        limit_s = min(self.connection.timeout_s, _LONGEST_TRY_S) + wait_s
        failures: list[str] = []
        refusal: LeadlineError | None = None
        for url in sorted(dict.fromkeys(addresses), key=lambda url: url != self._answered):
            try:
                response = self._send(method, url + path, params, body, {}, limit_s)
            except LeadlineError as error:
                if not is_transient(error):
                    raise refused(url, error) from error
                if not isinstance(error, Unreachable | ConnectionLost):
                    refusal = error
                failures.append(f"{url}: {reason(error)}")
            else:
                self._answered = url
                return response
        message = "; ".join(failures) or "no broker is known"
        if refusal is not None:
            raise LeadlineSparkError("LEADLINE_REFUSED", message) from refusal
        hint = "Check the option bootstrap and that the cluster is up."
        raise LeadlineSparkError("LEADLINE_CLUSTER_UNREACHABLE", f"{message}. {hint}")


def cluster_changed(known: str, found: str) -> LeadlineSparkError:
    """Return the error of a query of the cluster `known` that found another one."""
    return LeadlineSparkError(
        "LEADLINE_CLUSTER_CHANGED",
        f"The query began with cluster {known}, but cluster {found} has its addresses now. Start "
        "it again, with a new checkpoint.",
    )


def document(response: Response) -> Any:
    """Return the JSON body of a response."""
    return json.loads(response.body)


def reason(error: LeadlineError) -> str:
    """Return a failed request's error for a message: its code and text, or the network's error."""
    cause = error.__cause__
    if isinstance(error, Unreachable | ConnectionLost) and error.retriable and cause is not None:
        return (
            "timed out" if isinstance(cause, TimeoutError) else str(cause) or type(cause).__name__
        )
    return f"{error.details.get('server_code', error.code)}: {error.message}"


def refused(url: str, error: LeadlineError) -> LeadlineSparkError:
    """Return the error for a refusal that every other address would repeat."""
    message = f"{url} refused: {reason(error)} (HTTP {error.status}, outcome {error.outcome})"
    fields = error.details.get("fields")
    return LeadlineSparkError("LEADLINE_REFUSED", f"{message} {fields}" if fields else message)


def partition_info(metadata: Metadata, topic_partition: TopicPartition) -> PartitionInfo | None:
    """Return the row of a partition, None if it does not exist."""
    topic = metadata.topics.get(topic_partition.topic)
    rows = topic.partitions if topic else ()
    return next((row for row in rows if row.partition == topic_partition.partition), None)


def leader_url(metadata: Metadata, topic_partition: TopicPartition) -> str | None:
    """Return the base URL of a partition's leader, None if there is none."""
    row = partition_info(metadata, topic_partition)
    leader = metadata.brokers.get(row.leader) if row else None
    return leader.url if leader else None


def is_transient(error: LeadlineError) -> bool:
    """Return whether another address, or another attempt, may succeed.

    An error body in another format, such as a proxy's, decodes to a plain OutcomeUnknown.
    """
    return error.retriable or type(error) is OutcomeUnknown


def _encoded(body: Any) -> tuple[bytes, dict[str, str]]:
    """Return the content of a request and its content type."""
    if body is None:
        return b"", {}
    if isinstance(body, bytes):
        return body, {"content-type": OCTETS}
    return json.dumps(body, separators=(",", ":")).encode(), {"content-type": JSON}


def _offsets(answer: Any) -> OffsetsAnswer:
    return {
        TopicPartition(row["topic"], row["partition"]): _partition_offsets(row)
        for row in answer["partitions"]
    }


def _partition_offsets(row: Any) -> LeaderOffsets | OffsetsUnavailable:
    offsets = row.get("offsets")
    if row["error_code"] or offsets is None:
        return OffsetsUnavailable(row["error_code"], row.get("message") or "no reason given")
    leader = row.get("leader") or {}
    return LeaderOffsets(
        offsets["log_start_offset"],
        offsets["high_watermark"],
        LeaderAndEpoch(leader.get("url") or None, offsets["leader_epoch"]),
        offsets.get("offset"),
    )

"""The options of a write, checked once on the driver and pickled into every task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from leadline_spark.cluster.cluster_client import Connection
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options

_MOST_BATCH = 2**31 - 1
_LONGEST_NAME = 256
_MOST_TIMEOUT_MS = 300_000
"""How long a broker waits for replicas at most. It refuses to be asked for more."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How records are written, in bytes and ms. With `app`, exactly once.

    `request_timeout_ms` is how long a leader waits for the other replicas.
    """

    connection: Connection
    topic: str | None
    keep_timestamps: bool
    compression: str
    acks: str
    batch_bytes: int
    buffer_bytes: int
    request_timeout_ms: int
    deadline_s: float
    app: str | None
    version: int | None

    @classmethod
    def of(cls, options: Options, *, streaming: bool) -> Self:
        """Read the options. Raises LeadlineSparkError."""
        app = options.text("txnAppId")
        version = options.number("txnVersion")
        acks = {"-1": "all"}.get(options.required("acks"), options.required("acks").lower())
        if app is not None and acks != "all":
            needed = "with txnAppId every in-sync replica has to have the records"
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", f"acks is {acks}: {needed}.")
        _check_name(app)
        _check_version(app, version, streaming=streaming)
        return cls(
            connection=Connection.of(options),
            topic=options.text("topic"),
            keep_timestamps=options.flag("keepTimestamps"),
            compression=options.required("compression").lower(),
            acks=acks,
            batch_bytes=int(options.required("batchBytes")),
            buffer_bytes=int(options.required("bufferBytes")),
            request_timeout_ms=min(int(options.required("requestTimeoutMs")), _MOST_TIMEOUT_MS),
            deadline_s=int(options.required("deliveryTimeoutMs")) / 1000,
            app=app,
            version=version,
        )


def _check_name(app: str | None) -> None:
    """Refuse a name that leaders would refuse when everything is staged."""
    if app is not None and not 0 < len(app) <= _LONGEST_NAME:
        message = f"txnAppId has {len(app)} characters: it needs 1 to {_LONGEST_NAME}."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)


def _check_version(app: str | None, version: int | None, *, streaming: bool) -> None:
    if streaming and version is not None:
        message = "txnVersion is for batch writes: a stream numbers its batches itself."
        raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
    if not streaming and (app is None) != (version is None):
        message = "txnAppId and txnVersion go together in a batch write: which write of whom it is."
        raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
    if version is not None and version > _MOST_BATCH:
        message = f"txnVersion is {version}; it can be {_MOST_BATCH} at most."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)

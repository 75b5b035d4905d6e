"""The commit of an exactly-once write: what tasks staged is published, partition by partition.

The leader writes application and batch into the log itself, so that any later leader knows what was
published: a commit that is repeated publishes what is missing and nothing twice. Partitions are
published one by one; readers may see some before others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.transport import Refusal
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.write.partition_writers import LeaderClient
from leadline_spark.write.sink_settings import SinkSettings

logger = logging.getLogger(__name__)
_SIDE_BY_SIDE = 8
_UNKNOWN_STAGED = 40452
_MISMATCH = 40959
_OUT_OF_ORDER = 40962


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """What a task staged for a partition: ids in order, and the leader that gave them."""

    topic_partition: TopicPartition
    leader: str | None
    staged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteResult(WriterCommitMessage):
    """What a task did: which one it was, its rows, and what it staged, nothing if it appended."""

    task: int
    rows: int
    uploads: tuple[StagedUpload, ...] = ()


Messages = Iterable[WriterCommitMessage | None]


def publish_all(settings: SinkSettings, messages: Messages, batch: int) -> None:
    """Publish everything that was staged as batch `batch` of the application.

    Partitions are tried to the last, also when one fails. Raises LeadlineSparkError:
    LEADLINE_STAGED_LOST, _PUBLISH_REFUSED, _LEADER_UNREACHABLE, _REFUSED.
    """
    by_partition: dict[TopicPartition, list[StagedUpload]] = {}
    for message in sorted(_written(messages), key=lambda one: one.task):
        for upload in message.uploads:
            by_partition.setdefault(upload.topic_partition, []).append(upload)
    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="leadline-publish") as pool:
        tries = [
            pool.submit(_publish, settings, batch, by_partition[topic_partition])
            for topic_partition in sorted(by_partition)
        ]
    failures = [one.exception() for one in tries]
    for failure in filter(None, failures):
        raise failure


def drop_all(settings: SinkSettings, messages: Messages) -> None:
    """Delete what tasks have staged."""
    drop(settings, [upload for message in _written(messages) for upload in message.uploads])


def drop(settings: SinkSettings, uploads: Iterable[StagedUpload]) -> None:
    """Delete what is staged, where it can be reached; the rest dies of age."""
    gone: set[str] = set()
    for upload in uploads:
        leader = upload.leader
        if leader is not None and leader not in gone:
            leader_client = LeaderClient(
                settings.connection, upload.topic_partition, leader, settings.deadline_s
            )
            if not leader_client.drop(leader, upload.staged):
                gone.add(leader)


def _written(messages: Messages) -> list[WriteResult]:
    return [message for message in messages if isinstance(message, WriteResult)]


def _publish(settings: SinkSettings, batch: int, uploads: list[StagedUpload]) -> None:
    leader_client = LeaderClient(
        settings.connection, uploads[0].topic_partition, uploads[-1].leader, settings.deadline_s
    )
    body = {
        "app": settings.app,
        "batch": batch,
        "staged": [staged_id for upload in uploads for staged_id in upload.staged],
        "timeout_ms": settings.request_timeout_ms,
    }
    try:
        answer = leader_client.ask("POST", "publish", body).json()
    except Refusal as refusal:
        raise _explained(leader_client, settings, batch, refusal) from refusal
    if answer["duplicate"]:
        _check_repeated(leader_client, settings, batch, answer)


def _check_repeated(
    leader_client: LeaderClient, settings: SinkSettings, batch: int, answer: Any
) -> None:
    """Warn of a batch that was published before; refuse a stream that has gone back.

    The log tells where a batch ends that it knows as the latest of its application. A stream
    repeats no other: a later one there was written with another checkpoint, or by another query,
    and what is in this one would be in no log.
    """
    which = f"{leader_client.topic_partition}: batch {batch} of {settings.app}"
    if settings.version is None and answer["last_offset"] is None:
        message = (
            f"{which} is not written, as a later batch of that name was. The checkpoint is new, "
        )
        message += "or was put back, or another query has the name: choose a new txnAppId."
        raise LeadlineSparkError("LEADLINE_PUBLISH_REFUSED", message)
    logger.warning("%s was published before and is not published again.", which)


def _explained(
    leader_client: LeaderClient, settings: SinkSettings, batch: int, refusal: Refusal
) -> LeadlineSparkError:
    which = f"batch {batch} of {settings.app}"
    if refusal.error_code == _UNKNOWN_STAGED:
        message = (
            f"{leader_client.topic_partition}: no replica that answers has what was staged of {which} any more. "
            "Nothing is lost: run it again, and partitions that have it will not get it twice."
        )
        return LeadlineSparkError("LEADLINE_STAGED_LOST", message)
    if refusal.error_code in (_MISMATCH, _OUT_OF_ORDER):
        return leader_client.refused(refusal, "LEADLINE_PUBLISH_REFUSED")
    return leader_client.refused(refusal)

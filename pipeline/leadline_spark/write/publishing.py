"""The commit of an exactly-once write: publish what tasks staged, partition by partition.

The leader writes the application and batch number into the log, so that any later leader knows what
is published. A repeated commit publishes what is missing, and nothing twice. Readers may see some
partitions of a batch before others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from leadline_client.errors import (
    LeadlineError,
    PublishMismatch,
    PublishOutOfOrder,
    UnknownStaged,
)
from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import document
from leadline_spark.cluster.leader_client import LeaderClient
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.write.partition_writers import (
    check_staged_count,
    delete_staged,
    leader_client,
    post,
)
from leadline_spark.write.sink_settings import SinkSettings

logger = logging.getLogger(__name__)
_MAX_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class StagedBatches:
    """What a task staged for a partition: ids in order, and the leader that gave them."""

    topic_partition: TopicPartition
    leader: str | None
    staged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteResult(WriterCommitMessage):
    """What a task did: its number, its rows, and what it staged; nothing if it appended."""

    task: int
    rows: int
    staged: tuple[StagedBatches, ...] = ()


Messages = Iterable[WriterCommitMessage | None]


def publish_all(settings: SinkSettings, messages: Messages, batch: int) -> None:
    """Publish everything staged as batch number `batch` of the application.

    All partitions are tried, even after one fails. Raises LeadlineSparkError:
    LEADLINE_STAGED_LOST, _PUBLISH_REFUSED, _LEADER_UNREACHABLE, _REFUSED; and _PUBLISH_TOO_LARGE,
    before anything is published.
    """
    by_partition: dict[TopicPartition, list[StagedBatches]] = {}
    for result in sorted(_results(messages), key=lambda result: result.task):
        for staged in result.staged:
            by_partition.setdefault(staged.topic_partition, []).append(staged)
    for topic_partition in sorted(by_partition):
        ids = sum(len(staged.staged) for staged in by_partition[topic_partition])
        check_staged_count(topic_partition, ids)
    with ThreadPoolExecutor(_MAX_IN_FLIGHT, thread_name_prefix="leadline-publish") as pool:
        attempts = [
            pool.submit(_publish, settings, batch, by_partition[topic_partition])
            for topic_partition in sorted(by_partition)
        ]
    for failure in filter(None, [attempt.exception() for attempt in attempts]):
        raise failure


def drop_all(settings: SinkSettings, messages: Messages) -> None:
    """Delete what tasks have staged."""
    drop(settings, [staged for result in _results(messages) for staged in result.staged])


def drop(settings: SinkSettings, batches: Iterable[StagedBatches]) -> None:
    """Delete staged batches from the leaders that answer; the others expire."""
    unreachable: set[str] = set()
    for staged in batches:
        leader = staged.leader
        if leader is not None and leader not in unreachable:
            client = leader_client(settings, staged.topic_partition, leader)
            if not delete_staged(client, leader, staged.staged):
                unreachable.add(leader)


def _results(messages: Messages) -> list[WriteResult]:
    return [message for message in messages if isinstance(message, WriteResult)]


def _publish(settings: SinkSettings, batch: int, batches: list[StagedBatches]) -> None:
    client = leader_client(settings, batches[0].topic_partition, batches[-1].leader)
    body = {
        "app": settings.app,
        "batch": batch,
        "staged": [staged_id for staged in batches for staged_id in staged.staged],
        "timeout_ms": settings.request_timeout_ms,
    }
    try:
        answer = document(post(client, "publish", body))
    except LeadlineError as error:
        raise _explained(client, settings, batch, error) from error
    if answer["duplicate"]:
        _check_repeated(client, settings, batch, answer)


def _check_repeated(client: LeaderClient, settings: SinkSettings, batch: int, answer: Any) -> None:
    """Warn about a batch that was published before, and refuse one of a stream that went back.

    The answer has `last_offset` only for the latest batch of the application. A stream repeats no
    other. A later one was written with another checkpoint or by another query, and then the records
    of this batch are in no log.
    """
    which = f"{client.topic_partition}: batch {batch} of {settings.app}"
    if settings.version is None and answer["last_offset"] is None:
        message = (
            f"{which} is not written, as a later batch of that name was. The checkpoint is new, "
            "or was put back, or another query has the name: choose a new txnAppId."
        )
        raise LeadlineSparkError("LEADLINE_PUBLISH_REFUSED", message)
    if answer["last_offset"] is None:
        # Of a batch write: whether its number was ever written cannot be told any more.
        logger.warning("%s is not written, as a later batch of that name was.", which)
    else:
        logger.warning("%s was published before and is not published again.", which)


def _explained(
    client: LeaderClient, settings: SinkSettings, batch: int, error: LeadlineError
) -> LeadlineSparkError:
    if isinstance(error, UnknownStaged):
        which = f"batch {batch} of {settings.app}"
        message = (
            f"{client.topic_partition}: no replica that answers has what was staged of {which} any "
            "more. Nothing is lost: run it again, and partitions that have it will not get it "
            "twice."
        )
        return LeadlineSparkError("LEADLINE_STAGED_LOST", message)
    if isinstance(error, PublishMismatch | PublishOutOfOrder):
        return client.refused(error, "LEADLINE_PUBLISH_REFUSED")
    return client.refused(error)

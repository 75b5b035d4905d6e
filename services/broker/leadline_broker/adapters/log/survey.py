"""What a stopped broker's log directory holds, for restoring a cluster whose ZooKeeper is lost.

The logs are opened as the broker itself opens them, so an invalid tail, which was never
acknowledged, is truncated. Nothing else changes: the broker's next start finds what it would have
found.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from leadline_broker.adapters.log import root_files
from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.producer_ids import number_of
from leadline_broker.domain.publishes import FIRST_PUBLISHER_ID

FORMAT = 1
NO_PRODUCER = -1


class SurveyedLog(msgspec.Struct, frozen=True):
    """One log. `last_epoch` is the leader epoch of its last batch, -1 if it is empty.

    `directory_id` is empty unless the replica has one of its own (rule R17).
    """

    topic: str
    topic_id: str
    partition: int
    last_epoch: int
    end_offset: int
    directory_id: str = ""


class LogSurvey(msgspec.Struct, frozen=True):
    """One broker's log directory.

    `lost` are the (topic id, partition) of logs that should be there and are missing, or cannot be
    read. `controller_epoch` is the highest that the broker has accepted, `producer_number` the
    highest of a producer id in its logs, `incarnation` the one that was stopped cleanly. They are
    -1 if there is none.
    """

    cluster_id: str
    broker_id: int
    directory_id: str
    controller_epoch: int
    incarnation: int
    producer_number: int
    logs: tuple[SurveyedLog, ...]
    lost: tuple[tuple[str, int], ...] = ()
    format: int = FORMAT


def survey_logs(root: Path) -> LogSurvey:
    """Open and close all logs below `root`, and return what they hold.

    Raises:
        WrongDirectory: it is no broker's log directory, or a broker uses it.
        CorruptFile: the controller epoch cannot be read.
        OSError: the directory cannot be read or written.

    """
    owner = root_files.read_owner(root)
    directory = LogDirectory(root, cluster_id=owner.cluster_id, broker_id=owner.broker_id)
    clean = directory.clean_incarnation
    try:
        directory.load_all()
        survey = _survey(owner, directory)
    except BaseException:
        directory.release()
        raise
    if clean is None:
        directory.release()
    else:
        directory.close(clean)
    return survey


def _survey(owner: root_files.Owner, directory: LogDirectory) -> LogSurvey:
    logs, own_ids = directory.logs(), directory.own_directory_ids()
    stored = {log.identity.key for log in logs if log.recovery.has_segments}
    lost = {*directory.lost, *(key for key in own_ids if key not in stored)}
    clean = directory.clean_incarnation
    return LogSurvey(
        owner.cluster_id,
        owner.broker_id,
        directory.identity.directory_id,
        directory.controller_epoch,
        -1 if clean is None else clean,
        max((_producer_number(log) for log in logs), default=NO_PRODUCER),
        tuple(
            SurveyedLog(
                log.identity.topic,
                *log.identity.key,
                log.epochs.latest,
                log.log_end_offset,
                own_ids.get(log.identity.key, ""),
            )
            for log in logs
        ),
        tuple(sorted(lost)),
    )


def _producer_number(log: PartitionLog) -> int:
    """Return the highest number that was allocated in ZooKeeper; those of publishers were not."""
    rows = log.producers.rows()
    numbers = (number_of(row[0]) for row in rows if row[0] < FIRST_PUBLISHER_ID)
    return max(numbers, default=NO_PRODUCER)

"""What was committed in each log before the start, to find those that end too early (rule R17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import structlog

from leadline_broker.adapters.log import root_files
from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.state import ReplicaKey

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommittedEnds:
    """The checkpointed high watermarks, by (topic id, partition); empty unless `are_known`.

    Replicas learn their high watermarks again, and are never truncated to them (rule R2). But
    without the checkpoint nothing tells whether the tail that recovery truncates was committed.
    """

    by_key: Mapping[ReplicaKey, int]
    are_known: bool

    @classmethod
    def read(cls, root: Path, version: int) -> Self:
        """Read the checkpoint; `version` is that of the directory, and rises with each."""
        try:
            found = root_files.read_high_watermarks(root)
        except CorruptFile as error:
            return cls._unknown(error.message)
        if version and not (root / root_files.HIGH_WATERMARK_FILE).exists():
            return cls._unknown(f"{root_files.HIGH_WATERMARK_FILE} is gone")
        return cls(found, are_known=True)

    @classmethod
    def _unknown(cls, reason: str) -> Self:
        logger.warning("high watermarks unknown: a truncated log counts as lost", reason=reason)
        return cls({}, are_known=False)

    def is_short(self, log: PartitionLog) -> bool:
        """Return whether committed records may be missing at the end of a log, and log why."""
        reason = self._shortage(log)
        if reason:
            name = log.directory.name
            logger.error(
                "log may lack committed records: it is not elected", log=name, reason=reason
            )
        return bool(reason)

    def _shortage(self, log: PartitionLog) -> str:
        end, cut_bytes = log.log_end_offset, log.recovery.cut_bytes
        committed = self.by_key.get(log.identity.key, 0)
        if self.are_known:
            return f"it ends at {end}, and {committed} was committed" if end < committed else ""
        if not cut_bytes:
            return ""
        return (
            f"recovery truncated {cut_bytes} bytes at offset {end}, and the checkpoint that tells "
            f"whether they were committed ({root_files.HIGH_WATERMARK_FILE}) is damaged or gone"
        )

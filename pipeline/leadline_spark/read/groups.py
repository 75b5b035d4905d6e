"""Progress as committed offsets of a consumer group, so that lag tools see a stream.

For monitoring only: Spark's checkpoint alone says where a query goes on. So nothing here fails a
query; what goes wrong is logged, and the next report says more than the one that was missed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from leadline_spark.cluster.cluster_client import ClusterClient
from leadline_spark.cluster.transport import Refusal, Unreachable
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import UNKNOWN_EPOCH, SourceOffset

logger = logging.getLogger(__name__)
_SPACING_S = 1.0
_METADATA = "spark"


class GroupOffsetReporter:
    """Writes offsets of one group to the coordinator, at most once a second."""

    def __init__(
        self, cluster: ClusterClient, group: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._clock = clock
        self._coordinator: str | None = None
        self._written_at: float | None = None
        self._written: SourceOffset | None = None

    def report(self, done: SourceOffset) -> None:
        """Write these offsets, unless they are written or others were a moment ago."""
        now = self._clock()
        recent = self._written_at is not None and now - self._written_at < _SPACING_S
        if done == self._written or recent:
            return
        self._written, self._written_at = done, now
        try:
            self._write(_rows(done))
        except (LeadlineSparkError, Refusal, Unreachable) as failure:
            self._coordinator = None
            logger.warning("commitGroup %s: offsets were not written: %s", self._group, failure)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        if self._coordinator is None:
            found = self._cluster.ask_broker("POST", "/v1/consult").json()
            self._coordinator = (found.get("coordinator") or {}).get("url")
        if self._coordinator is None:
            raise LeadlineSparkError("LEADLINE_REFUSED", "no coordinator is active")
        path = f"/v1/groups/{quote(self._group, safe='')}/offsets"
        answer = self._cluster.call("POST", self._coordinator, path, body={"offsets": rows})
        refused = [row for row in answer.json()["offsets"] if row.get("error_code")]
        if refused:
            message = f"{len(refused)} of {len(rows)}: {refused[0].get('message')}"
            raise LeadlineSparkError("LEADLINE_REFUSED", message)


def _rows(end: SourceOffset) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "offset": at.offset,
        }
        | ({} if at.epoch == UNKNOWN_EPOCH else {"leader_epoch": at.epoch})
        | {"metadata": _METADATA}
        for topic_partition, at in sorted(end.positions.items())
    ]

"""The progress of a streaming query for monitoring: its lag, and committed offsets of a group.

Spark accepts no metrics from Python sources. `offsets_behind_latest` computes the three that its
Kafka source reports, under the same names, from the offsets in a query's progress:

    offsets_behind_latest(query.lastProgress)
    {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 7, "avgOffsetsBehindLatest": 2.5}
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from leadline_client.errors import LeadlineError
from leadline_spark.cluster.cluster_client import ClusterClient, document, reason
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import UNKNOWN_EPOCH, SourceOffset

logger = logging.getLogger(__name__)
_SPACING_S = 1.0
Lag = dict[str, float]


def offsets_behind_latest(progress: Any, source: int = 0) -> Lag | None:
    """Return the lag of one source of a query over its partitions, in offsets.

    `progress` is `query.lastProgress` or the progress that a listener gets: the object, its JSON,
    or a mapping. Returns None if the source has not reported both offsets yet.
    """
    if isinstance(progress, str):
        progress = json.loads(progress)
    elif progress is not None and not isinstance(progress, Mapping):
        progress = json.loads(progress.json)
    sources = (progress or {}).get("sources", [])
    if len(sources) <= source:
        return None
    end, latest = (_offset(sources[source].get(name)) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    behind = [
        max(0, at.offset - end.positions[tp].offset)
        for tp, at in latest.positions.items()
        if tp in end.positions
    ]
    if not behind:
        return None
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


@dataclass(slots=True)
class GroupOffsetReporter:
    """Commits a stream's offsets to a consumer group, at most once a second.

    Only Spark's checkpoint decides where a query resumes, so a failure is logged and never fails
    the query.
    """

    cluster: ClusterClient
    group: str
    _coordinator: str | None = None
    _reported_at: float | None = None
    _reported: SourceOffset | None = None

    def report(self, offset: SourceOffset) -> None:
        """Commit these offsets unless they are committed, or others were less than 1 s ago."""
        now = time.monotonic()
        recent = self._reported_at is not None and now - self._reported_at < _SPACING_S
        if offset == self._reported or recent:
            return
        self._reported, self._reported_at = offset, now
        try:
            self._commit(_rows(offset))
        except LeadlineSparkError as failure:
            self._on_failure(str(failure))
        except LeadlineError as error:
            self._on_failure(reason(error))

    def _on_failure(self, message: str) -> None:
        self._coordinator = None
        logger.warning("commitGroup %s: offsets were not written: %s", self.group, message)

    def _commit(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        if self._coordinator is None:
            self._coordinator = self.cluster.coordinator()
        if self._coordinator is None:
            raise LeadlineSparkError("LEADLINE_REFUSED", "no coordinator is active")
        path = f"/v1/groups/{quote(self.group, safe='')}/offsets"
        response = self.cluster.call("POST", self._coordinator, path, body={"offsets": rows})
        refused = [row for row in document(response)["offsets"] if row.get("error_code")]
        if refused:
            message = f"{len(refused)} of {len(rows)}: {refused[0].get('message')}"
            raise LeadlineSparkError("LEADLINE_REFUSED", message)


def _offset(shown: Any) -> SourceOffset | None:
    offset = json.loads(shown) if isinstance(shown, str) else shown
    return SourceOffset.of(offset) if isinstance(offset, Mapping) else None


def _rows(offset: SourceOffset) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": partition, "offset": at.offset}
        | ({} if at.epoch == UNKNOWN_EPOCH else {"leader_epoch": at.epoch})
        | {"metadata": "spark"}
        for (topic, partition), at in sorted(offset.positions.items())
    ]

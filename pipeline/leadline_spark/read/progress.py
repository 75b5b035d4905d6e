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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import quote

from leadline_client.errors import LeadlineError
from leadline_spark.cluster.cluster_client import ClusterClient, Connection, document, reason
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import UNKNOWN_EPOCH, SourceOffset

logger = logging.getLogger(__name__)
_SPACING_S = 1.0
_FAILED_SPACING_S = 10.0
_LONGEST_S = 3.0
"""How long a request may hold up the stream."""
_AUDIT = "audit"
Lag = dict[str, float]


def offsets_behind_latest(progress: Any, source: int = 0) -> Lag | None:
    """Return the lag of one source of a query over its partitions, in offsets.

    Of a stream of the table `audit` it is the lag in entries.

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
    end, latest = (_numbers(sources[source].get(name)) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    behind = [max(0, number - end[place]) for place, number in latest.items() if place in end]
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
    the query. Nor does a coordinator that does not answer hold it up: requests are short, and
    after a failure there is none for ten seconds.
    """

    cluster: ClusterClient
    group: str
    clock: Callable[[], float] = time.monotonic
    _coordinator: str | None = None
    _next_at: float | None = None
    _reported: SourceOffset | None = None

    @classmethod
    def of(cls, connection: Connection, group: str) -> Self:
        """Return a reporter with a connection of its own."""
        short = replace(connection, timeout_s=min(connection.timeout_s, _LONGEST_S))
        return cls(ClusterClient(short), group)

    def report(self, offset: SourceOffset) -> None:
        """Commit these offsets unless they are committed, or others were less than 1 s ago."""
        now = self.clock()
        if offset == self._reported or (self._next_at is not None and now < self._next_at):
            return
        self._reported, self._next_at = offset, now + _SPACING_S
        try:
            self._commit(_rows(offset))
        except LeadlineSparkError as failure:
            self._on_failure(str(failure))
        except LeadlineError as error:
            self._on_failure(reason(error))

    def _on_failure(self, message: str) -> None:
        self._coordinator = self._reported = None
        self._next_at = self.clock() + _FAILED_SPACING_S
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


def _numbers(shown: Any) -> Mapping[Any, int] | None:
    """Return an offset by partition, None if the source has not reported it."""
    offset = json.loads(shown) if isinstance(shown, str) else shown
    if not isinstance(offset, Mapping):
        return None
    if type(offset.get(_AUDIT)) is int:
        return {_AUDIT: offset[_AUDIT]}
    return {tp: at.offset for tp, at in SourceOffset.of(offset).positions.items()}


def _rows(offset: SourceOffset) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": partition, "offset": at.offset}
        | ({} if at.epoch == UNKNOWN_EPOCH else {"leader_epoch": at.epoch})
        | {"metadata": "spark"}
        for (topic, partition), at in sorted(offset.positions.items())
    ]

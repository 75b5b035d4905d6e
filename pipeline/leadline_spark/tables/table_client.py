"""Requests for tables, to whichever address answers: page by page, complete or with an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from leadline_client.transport import CLUSTER_ID_HEADER, Response
from leadline_spark.cluster.cluster_client import ClusterClient, Connection, document
from leadline_spark.cluster.waiting import until_answered
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.tables.columns import AUDIT, GROUPS, read_row
from leadline_spark.tables.id_ranges import IdRange, gaps, lost

logger = logging.getLogger(__name__)
_EXPORT = "/v1/export"
_PAGE = 1_000
"""Entries in one response: one entry about a thousand partitions is 100 KB."""


@dataclass(frozen=True, slots=True)
class TableClient:
    """Fetches the tables of a cluster; pickled into every task.

    With `cluster_id`, another cluster at its addresses is LEADLINE_CLUSTER_CHANGED.
    """

    connection: Connection
    deadline_s: float = 60.0
    fail_on_data_loss: bool = True
    cluster_id: str | None = None

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options. Raises LeadlineSparkError."""
        return cls(
            Connection.of(options),
            (options.number("fetchDeadlineMs") or 60_000) / 1_000,
            options.flag("failOnDataLoss"),
        )

    def audit_head(self, *, known: bool = False) -> tuple[IdRange, str | None]:
        """Return the ids of the audit entries that exist at present, and the id of the cluster.

        `known`: the cluster has answered before, so an unreachable one is waited for until the
        deadline. Raises LeadlineSparkError.
        """
        cluster = self._cluster()
        head = self._until_answered(lambda: _get(cluster, f"{AUDIT}/head"), known=known)
        return IdRange.from_head(document(head)), head.headers.get(CLUSTER_ID_HEADER)

    def entries(self, wanted: IdRange) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of a range of the audit, a page at a time.

        Raises LeadlineSparkError: LEADLINE_DATA_LOSS, LEADLINE_REFUSED, _CLUSTER_UNREACHABLE.
        """
        cluster = self._cluster()
        left = wanted
        while left.size:
            rows = self._page(cluster, left)
            for gap in gaps(left, [row["id"] for row in rows]):
                self.report_loss(gap)
            if not rows:
                self.report_loss(left)
                return
            yield rows
            left = IdRange(rows[-1]["id"] + 1, left.end)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table of the present, one snapshot. Raises as `entries` does."""
        cluster = ClusterClient(self.connection)
        if table == GROUPS:
            response = self._until_answered(lambda: _from_coordinator(cluster))
        else:
            response = self._until_answered(lambda: _get(cluster, table))
        return _rows(table, response)

    def report_loss(self, gone: IdRange) -> None:
        """Raise LEADLINE_DATA_LOSS for entries that are gone, or log it if that is accepted."""
        if self.fail_on_data_loss:
            raise LeadlineSparkError("LEADLINE_DATA_LOSS", f"The {lost(gone)}")
        logger.warning("LEADLINE_DATA_LOSS: the %s", lost(gone))

    def _cluster(self) -> ClusterClient:
        return ClusterClient(self.connection, self.cluster_id)

    def _page(self, cluster: ClusterClient, left: IdRange) -> list[dict[str, Any]]:
        params = {"after": left.start - 1, "before": left.end, "limit": _PAGE}
        page = self._until_answered(lambda: _get(cluster, AUDIT, params), known=True)
        return _rows(AUDIT, page)

    def _until_answered(self, call: Callable[[], Response], *, known: bool = False) -> Response:
        """Repeat a request until the deadline: see `until_answered`."""
        return until_answered(call, self.deadline_s, known=known)


def _get(cluster: ClusterClient, path: str, params: dict[str, int] | None = None) -> Response:
    return cluster.ask("GET", f"{_EXPORT}/{path}", params=params)


def _from_coordinator(cluster: ClusterClient) -> Response:
    coordinator = cluster.coordinator()
    if coordinator is None:
        message = "No coordinator of consumer groups is active, so there is no table of groups."
        raise LeadlineSparkError("LEADLINE_REFUSED", message)
    return _get(ClusterClient(replace(cluster.connection, bootstrap=(coordinator,))), GROUPS)


def _rows(table: str, response: Response) -> list[dict[str, Any]]:
    try:
        return [read_row(table, line) for line in response.body.splitlines()]
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        message = f"A line of the table {table} is not of it: {failure!r}"
        raise LeadlineSparkError("LEADLINE_TABLE_INVALID", message) from failure

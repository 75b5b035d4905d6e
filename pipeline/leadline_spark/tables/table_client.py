"""Tables over HTTP: from whoever answers, page by page, whole or with an error."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.cluster.transport import Answer, Refusal
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.tables.columns import AUDIT, GROUPS, read_row
from leadline_spark.tables.id_ranges import IdRange, gaps, lost

logger = logging.getLogger(__name__)
_EXPORT = "/v1/export"
_PAGE = 1_000
"""Entries in one request: one about a thousand partitions is 100 KB."""
_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class TableClient:
    """Asks a cluster for its tables; pickled into every task."""

    connection: Connection
    deadline_s: float = 60.0
    fail_on_data_loss: bool = True

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options. Raises LeadlineSparkError."""
        return cls(
            Connection.of(options),
            (options.number("fetchDeadlineMs") or 60_000) / 1_000,
            options.flag("failOnDataLoss"),
        )

    def there(self, *, known: bool = False) -> IdRange:
        """Return the audit entries that there are at the moment. Raises LeadlineSparkError.

        A cluster that is `known` to have answered before is waited for where nobody does now.
        """
        cluster = ClusterClient(self.connection)
        return IdRange.told(self._ask(lambda: _get(cluster, f"{AUDIT}/head"), known=known).json())

    def entries(self, wanted: IdRange) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of a range of the audit, a page at a time.

        Raises LeadlineSparkError: LEADLINE_DATA_LOSS, LEADLINE_REFUSED, _CLUSTER_UNREACHABLE.
        """
        cluster = ClusterClient(self.connection)
        left = wanted
        while left.size:
            rows = self._page(cluster, left)
            for gap in gaps(left, [row["id"] for row in rows]):
                self.check_lost(gap)
            if not rows:
                self.check_lost(left)
                return
            yield rows
            left = IdRange(rows[-1]["id"] + 1, left.end)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table of the present, which are one snapshot. Raises as above."""
        cluster = ClusterClient(self.connection)
        if table == GROUPS:
            answer = self._ask(lambda: _from_coordinator(cluster))
        else:
            answer = self._ask(lambda: _get(cluster, table))
        return _rows(table, answer)

    def check_lost(self, gone: IdRange) -> None:
        """Say that entries are gone. Raises LEADLINE_DATA_LOSS where that is not accepted."""
        if self.fail_on_data_loss:
            raise LeadlineSparkError("LEADLINE_DATA_LOSS", f"The {lost(gone)}")
        logger.warning("LEADLINE_DATA_LOSS: the %s", lost(gone))

    def _page(self, cluster: ClusterClient, left: IdRange) -> list[dict[str, Any]]:
        params = {"after": left.start - 1, "before": left.end, "limit": _PAGE}
        return _rows(AUDIT, self._ask(lambda: _get(cluster, AUDIT, params), known=True))

    def _ask(self, call: Callable[[], Answer], *, known: bool = False) -> Answer:
        """Ask until the deadline, as long as everybody refuses for the moment.

        So it is while one controller takes over from another; a `known` one may also be silent.
        """
        give_up = time.monotonic() + self.deadline_s
        while True:
            try:
                return call()
            except LeadlineSparkError as failure:
                message = failure.__cause__
                silent = failure.code == "LEADLINE_CLUSTER_UNREACHABLE"
                passing = known if silent else isinstance(message, Refusal) and message.retriable
                if not passing or time.monotonic() >= give_up:
                    raise
            time.sleep(_AGAIN_S)


def _get(cluster: ClusterClient, path: str, params: dict[str, int] | None = None) -> Answer:
    return cluster.ask("GET", f"{_EXPORT}/{path}", params=params)


def _from_coordinator(cluster: ClusterClient) -> Answer:
    """Ask the coordinator of groups, whom any broker names."""
    coordinator = cluster.ask_broker("POST", "/v1/consult").json()["coordinator"]
    if coordinator is None:
        message = "No coordinator of consumer groups is active, so there is no table of groups."
        raise LeadlineSparkError("LEADLINE_REFUSED", message)
    asked = ClusterClient(
        Connection((coordinator["url"],), cluster.connection.token, cluster.connection.timeout_s)
    )
    return _get(asked, GROUPS)


def _rows(table: str, answer: Answer) -> list[dict[str, Any]]:
    try:
        return [read_row(table, line) for line in answer.body.splitlines()]
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        message = f"A line of the table {table} is not of it: {problem!r}"
        raise LeadlineSparkError("LEADLINE_TABLE_INVALID", message) from problem

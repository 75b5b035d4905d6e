"""Repeating a request that any node answers while, for the moment, none does.

All brokers may be down for a while, or a controller may just have failed. What has begun then waits
for them, as requests to leaders do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from leadline_client.errors import LeadlineError
from leadline_spark.cluster.cluster_client import is_transient
from leadline_spark.errors import LeadlineSparkError

T = TypeVar("T")
_RETRY_S = 0.2


def until_answered(call: Callable[[], T], deadline_s: float, *, known: bool = True) -> T:
    """Repeat a request until the deadline while all nodes refuse it for the moment.

    They do during a controller failover. With `known`, no node may answer at all; without it, the
    addresses may be wrong, and that is an error at once. Raises what `call` raises.
    """
    give_up = time.monotonic() + deadline_s
    while True:
        try:
            return call()
        except LeadlineSparkError as failure:
            cause = failure.__cause__
            if failure.code == "LEADLINE_CLUSTER_UNREACHABLE":
                transient = known
            else:
                transient = isinstance(cause, LeadlineError) and is_transient(cause)
            if not transient or time.monotonic() >= give_up:
                raise
        time.sleep(_RETRY_S)

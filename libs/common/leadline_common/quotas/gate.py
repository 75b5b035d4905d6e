"""Refuses requests of those who have used up a quota, and counts what the others use."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from prometheus_client import Counter, Histogram

from leadline_client.errors import QuotaExceeded
from leadline_common.metrics import WAIT_BUCKETS, Family, Metrics, Rows, ScrapedMetrics
from leadline_common.quotas.bucket import BURST_S, TokenBucket
from leadline_common.quotas.ledger import Payer, QuotaLedger
from leadline_common.quotas.limits import NO_QUOTA, OF_ADDRESSES, Limits, Quota

MOST_SHOWN: Final = 1_000
"""Most pairs of a quota and a user with a metric of their own."""
_SETTING: Final = {quota: f"quota_{quota}" for quota in Quota}


class LimitsOfUsers(Protocol):
    """The users, as far as their quotas go (`leadline_common.access.users.Users`)."""

    def limits_of(self, name: str) -> Limits:
        """Return the quotas of a user."""

    def created_ms_of(self, name: str) -> int:
        """Return when a user was created, 0 if it is unknown."""


@dataclass(eq=False)
class QuotaGate:
    """The quotas of one service. Owned by the event loop.

    `users()` returns the users, whose own quotas come first; `settings()` the settings in force,
    which have the others. A payer of None pays nothing: it is a service of the cluster.
    """

    metrics: Metrics
    users: Callable[[], LimitsOfUsers | None] = lambda: None
    settings: Callable[[], object] = lambda: None
    monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    _ledger: QuotaLedger = field(default_factory=QuotaLedger, init=False)
    _refused: Counter = field(init=False)
    _waits: Histogram = field(init=False)

    def __post_init__(self) -> None:
        self._refused = self.metrics.counter(
            "quota_refused_requests", "Requests refused because a quota was used up.", ("quota",)
        )
        self._waits = self.metrics.histogram(
            "quota_wait_seconds",
            "How long the senders of refused requests were asked to wait until the quota allows "
            "more.",
            ("quota",),
            buckets=WAIT_BUCKETS,
        )
        for quota in Quota:
            self._refused.labels(quota)  # From 0 on, so that the first refusal is an increase.
        self.metrics.add(_Used(self._ledger))

    def admit(self, quota: Quota, payer: Payer | None, amount: int = 0) -> None:
        """Admit a request that uses `amount`, or refuse it and use nothing.

        Raises:
            QuotaExceeded: the payer has used more than the quota allows until now.

        """
        rate = self._rate(quota, payer)
        if payer is None or rate == NO_QUOTA:
            return
        now = self.monotonic_ms()
        bucket = self._bucket(quota, payer, rate, now)
        if wait_ms := bucket.wait_ms(now):
            raise self._refusal(quota, payer, bucket, wait_ms)
        bucket.take(amount, now)

    def charge(self, quota: Quota, payer: Payer | None, amount: int) -> None:
        """Count what a request has used that was admitted before its size was known."""
        rate = self._rate(quota, payer)
        if payer is not None and rate != NO_QUOTA:
            now = self.monotonic_ms()
            self._bucket(quota, payer, rate, now).take(amount, now)

    def _bucket(self, quota: Quota, payer: Payer, rate: int, now: int) -> TokenBucket:
        users = self.users() if payer.user else None
        since = 0 if users is None else users.created_ms_of(payer.user)
        return self._ledger.bucket(quota, payer, rate, now, since)

    def _rate(self, quota: Quota, payer: Payer | None) -> int:
        """Return the quota of a payer: its own one or the default, `NO_QUOTA` for no limit."""
        if payer is None:
            return NO_QUOTA
        own: int | None = None
        if payer.user:
            users = self.users()
            own = users.limits_of(payer.user).of(quota) if users is not None else None
        elif quota not in OF_ADDRESSES:
            return NO_QUOTA
        default: int = getattr(self.settings(), _SETTING[quota], NO_QUOTA)
        return default if own is None else own

    def _refusal(
        self, quota: Quota, payer: Payer, bucket: TokenBucket, wait_ms: int
    ) -> QuotaExceeded:
        self._refused.labels(quota).inc()
        self._waits.labels(quota).observe(wait_ms / 1_000)
        where = f"`leadline users quotas {payer.user}`" if payer.user else "`leadline configs set`"
        return QuotaExceeded(
            f"{payer} has used up its quota {quota}, {bucket.rate} on average and "
            f"{bucket.rate * BURST_S} at once: ask again in {wait_ms} ms; an administrator can "
            f"change it ({where})",
            quota=str(quota),
            limit=bucket.rate,
            retry_after_s=wait_ms / 1_000,
        )


class _Used(ScrapedMetrics):
    """What users have used of their quotas; those of addresses have no metrics."""

    def __init__(self, ledger: QuotaLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._found: list[tuple[Quota, Payer, int]] = []
        self._family: Family = self.family(
            "counter",
            "quota_used",
            "What users have used of their quotas: bytes, requests or partitions; at most 1,000 "
            "pairs of a quota and a user, those used last.",
            ("quota", "user"),
        )

    def sample(self) -> None:
        """Read the ledger."""
        of_users = (one for one in self._ledger.used() if one[1].user)
        self._found = list(islice(of_users, MOST_SHOWN))

    def rows(self) -> Rows:
        """Return the numbers."""
        return {
            self._family: [
                ({"quota": str(quota), "user": payer.user}, used)
                for quota, payer, used in self._found
            ]
        }

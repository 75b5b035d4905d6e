"""What each user, or each address, has left of each quota. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from leadline_common.quotas.bucket import TokenBucket
from leadline_common.quotas.limits import Quota

MAX_BUCKETS: Final = 10_000
"""More than all users have. Of addresses, those that were not seen for longest are forgotten."""


class Payer(NamedTuple):
    """Whose quota a request uses: that of a user, or of an address if users are not known."""

    user: str = ""
    address: str = ""

    def __str__(self) -> str:
        return f"user:{self.user}" if self.user else f"address {self.address}"


@dataclass(slots=True)
class QuotaLedger:
    """The buckets of all payers, at most `most`."""

    most: int = MAX_BUCKETS
    _buckets: OrderedDict[tuple[Quota, Payer], TokenBucket] = field(
        default_factory=OrderedDict, init=False
    )

    def __len__(self) -> int:
        return len(self._buckets)

    def bucket(
        self, quota: Quota, payer: Payer, rate: int, now: int, since: int = 0
    ) -> TokenBucket:
        """Return a payer's bucket, with this rate from now on.

        `since` is when the user was created: one that was deleted leaves its debt to no other of
        its name.
        """
        key = (quota, payer)
        found = self._buckets.get(key)
        if found is not None and found.owner_since == since:
            self._buckets.move_to_end(key)
            found.set_rate(rate, now)
            return found
        if found is not None:
            del self._buckets[key]
        elif len(self._buckets) >= self.most:
            self._buckets.popitem(last=False)
        made = self._buckets[key] = TokenBucket(rate, now, since)
        return made

    def used(self) -> Iterator[tuple[Quota, Payer, int]]:
        """Yield what each payer has used of each quota, those that used one last first."""
        for (quota, payer), bucket in reversed(self._buckets.items()):
            yield quota, payer, bucket.used

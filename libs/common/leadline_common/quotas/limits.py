"""Which quotas there are, and what they are for a user. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from leadline_client.errors import InvalidRequest

NO_QUOTA: Final = 0
"""The value of a quota that limits nothing."""
_MOST: Final = 10**15
_Rate = Annotated[int, msgspec.Meta(ge=NO_QUOTA, le=_MOST)]


class Quota(StrEnum):
    """What is limited; the value is the name in the API, and `quota.` before it in the settings."""

    PRODUCE = "produce_bytes_per_s"
    """Bytes of the bodies that are produced or staged, on each broker."""
    FETCH = "fetch_bytes_per_s"
    """Bytes of the records that are read, on each broker."""
    REQUESTS = "requests_per_s"
    """Requests and handshakes of WebSockets, on each service that clients call."""
    PARTITION_CHANGES = "partition_changes_per_s"
    """Partitions that are created or deleted, in the cluster (KIP-599)."""


OF_ADDRESSES: Final = frozenset({Quota.PRODUCE, Quota.FETCH})
"""What is limited for the address of a client if nobody shows who it is.

Services send each other the other requests, too, and look like clients then.
"""


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The quotas of a user by name; None: the default applies, `NO_QUOTA`: there is no limit."""

    produce_bytes_per_s: _Rate | None = None
    fetch_bytes_per_s: _Rate | None = None
    requests_per_s: _Rate | None = None
    partition_changes_per_s: _Rate | None = None

    def of(self, quota: Quota) -> int | None:
        """Return one quota."""
        value: int | None = getattr(self, quota)
        return value

    def checked(self) -> Limits:
        """Return the same quotas.

        Raises:
            InvalidRequest: one is negative, or larger than any rate.

        """
        for quota in Quota:
            value = self.of(quota)
            if value is not None and not NO_QUOTA <= value <= _MOST:
                raise InvalidRequest(f"{quota}: must be between 0 (no quota) and {_MOST}")
        return self


DEFAULTS: Final = Limits()
"""The quotas of a user who has none of its own."""

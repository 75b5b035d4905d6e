"""Tables that are asked for wrongly; see `bad_input`."""

from __future__ import annotations

from tests.support.bad_input.table import Bad

MALFORMED = 40050


def asked(name: str, what: str, says: str) -> Bad:
    """Return a request for a table."""
    return Bad(name, "GET", f"/v1/export/{what}", MALFORMED, says=says)


EXPORTS = [
    asked("unknown table", "topics", "table"),
    asked("table of the coordinator", "groups", "table"),
    asked("audit after no number", "audit?after=now", "after"),
    asked("audit after less than nothing", "audit?after=-2", "after"),
    asked("audit before less than nothing", "audit?before=-1", "before"),
    asked("no audit entries", "audit?limit=0", "limit"),
    asked("too many audit entries", "audit?limit=10001", "limit"),
    Bad("table that is written", "POST", "/v1/export/partitions", 405),
]

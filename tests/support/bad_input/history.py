"""Questions to the past that cannot be answered; see `bad_input`."""

from __future__ import annotations

from tests.support.bad_input.table import Bad

MALFORMED = 40050
BEYOND_32_BITS = 2**31
BEYOND_64_BITS = 2**63


def asked(name: str, what: str, says: str) -> Bad:
    """Return a question to the past."""
    return Bad(name, "GET", f"/v1/{what}", MALFORMED, says=says)


QUESTIONS = [
    asked("audit of a partition of no topic", "audit?partition=0", "topic"),
    asked("audit of no number", f"audit?topic=t&partition={BEYOND_32_BITS}", "partition"),
    asked("audit of no broker", f"audit?broker={BEYOND_32_BITS}", "broker"),
    asked("audit since no time", f"audit?since={BEYOND_64_BITS}", "since"),
    asked("audit until no time", f"audit?until={BEYOND_64_BITS}", "until"),
    asked("audit beyond no id", f"audit/export?after={BEYOND_64_BITS}", "after"),
    asked("table of the audit beyond no id", f"export/audit?after={BEYOND_64_BITS}", "after"),
    asked("table of the audit before no id", f"export/audit?before={BEYOND_64_BITS}", "before"),
    asked("failures of no broker", f"failed-brokers/history?broker={BEYOND_32_BITS}", "broker"),
    asked("cluster at no time", f"cluster?at={BEYOND_64_BITS}", "at"),
    asked("cluster at no version", f"cluster?version={BEYOND_64_BITS}", "version"),
]

"""From the body of an answer to the error that it stands for."""

from __future__ import annotations

from typing import Any

from leadline_client.errors import (
    administration,
    groups,
    publishing,
    replication,
    requests,
    unknown,
)
from leadline_client.errors.tree import LeaderHint, LeadlineError, OutcomeUnknown, Refused

BRANCHES = (requests, replication, publishing, administration, groups, unknown)
"""The modules that make up the tree: importing them is what makes it whole."""


def _tree(root: type[LeadlineError]) -> list[type[LeadlineError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


ERRORS_BY_CODE: dict[int, type[LeadlineError]] = {
    error.code: error
    for error in reversed(_tree(LeadlineError))
    if error not in {LeadlineError, Refused, OutcomeUnknown}
}
"""Every concrete error by its code, for decoding answers and for the docs."""


def _hint(body: Any) -> LeaderHint | None:
    """Read a hint; a server of another release may say more of a leader, or less."""
    try:
        return LeaderHint(body["id"], body["url"], body["epoch"])
    except (KeyError, TypeError):
        return None


def error_from_body(status: int, body: Any) -> LeadlineError:
    """Rebuild the error that a server answered with.

    An unknown code keeps its number and its stated outcome; a body that is not
    in the house format is an unknown outcome for statuses of 500 and above, and
    a refusal below.
    """
    fields = dict(body) if isinstance(body, dict) else {}
    code = fields.pop("error_code", status)
    message = str(fields.pop("message", f"HTTP status {status}"))
    outcome = fields.pop("outcome", "unknown" if status >= 500 else "refused")
    fields.pop("retriable", None)
    leader = _hint(fields.pop("leader", None))
    known = ERRORS_BY_CODE.get(code)
    if known is not None and known.outcome == outcome:
        return known(message, leader=leader, **fields)
    fallback = OutcomeUnknown if outcome == "unknown" else Refused
    return fallback(message, leader=leader, server_code=code, **fields)

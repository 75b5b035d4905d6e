"""Decoding of error responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from leadline_client.errors import groups, records, replication, requests
from leadline_client.errors.requests import Forbidden, QuotaExceeded, Unauthorized
from leadline_client.errors.tree import (
    RETRY_AFTER,
    LeaderHint,
    LeadlineError,
    OutcomeUnknown,
    Refused,
)

BRANCHES = (requests, replication, groups, records)
"""The modules of refusals; `ERRORS_BY_CODE` finds only errors of imported modules."""


def _tree(root: type[LeadlineError]) -> list[type[LeadlineError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


ERRORS_BY_CODE: dict[int, type[LeadlineError]] = {
    error.code: error
    for error in reversed(_tree(LeadlineError))
    if error not in {LeadlineError, Refused, OutcomeUnknown}
}
"""Every concrete error by its code."""


_OF_STATUS: dict[int, tuple[type[LeadlineError], str]] = {
    401: (Unauthorized, "the token is missing, wrong or expired; LEADLINE_TOKEN_FILE names one"),
    429: (QuotaExceeded, "the user's quota is used up"),
    403: (Forbidden, "the token is of a user that may not do this"),
}
"""What a proxy in front of a service may say by the status alone, without Leadline's body."""


_SECONDS: Final = re.compile(r"[0-9]+")
"""What a service sends; a proxy's date, which needs a clock that is set, counts as nothing."""


def _hint(body: Any) -> LeaderHint | None:
    """Read a leader hint; a server of another release may send more members or fewer."""
    if not isinstance(body, dict):
        return None
    leader, url, epoch = body.get("id"), body.get("url"), body.get("epoch")
    topic_id = body.get("topic_id") or ""
    if not (isinstance(leader, int) and isinstance(epoch, int)):
        return None
    if not (isinstance(url, str) and isinstance(topic_id, str)):
        return None
    return LeaderHint(leader, url, epoch, topic_id)


def _has_members(fields: Mapping[str, Any], known: type[LeadlineError]) -> bool:
    return all(isinstance(fields.get(name), kind) for name, kind in known.members.items())


def error_from_body(status: int, body: Any, retry_after: str | None = None) -> LeadlineError:
    """Return the error of a server's response; `retry_after` is that header.

    An error with an unknown code, or without the members that its code has, keeps the code and the
    outcome that the body states. A body that is not in Leadline's error format means an unknown
    outcome for a status of 500 and above, and a refusal below.
    """
    fields = dict(body) if isinstance(body, dict) else {}
    found, advice = _OF_STATUS.get(status, (None, ""))
    code = fields.pop("error_code", None)
    if not isinstance(code, int):
        code = found.code if found else status
    message = str(fields.pop("message", f"HTTP status {status}{advice and ': '}{advice}"))
    outcome = fields.pop("outcome", "unknown" if status >= 500 else "refused")
    fields.pop("retriable", None)
    if status == QuotaExceeded.code // 100 and _SECONDS.fullmatch(retry_after or ""):
        fields.setdefault(RETRY_AFTER, float(retry_after or 0))
    leader = _hint(fields.pop("leader", None))
    known = ERRORS_BY_CODE.get(code)
    if known is not None and known.outcome == outcome and _has_members(fields, known):
        error = known(message, leader=leader)
    else:
        error = (OutcomeUnknown if outcome == "unknown" else Refused)(message, leader=leader)
        fields["server_code"] = code
    error.details.update(fields)  # Not as arguments: a body may have members of any names.
    return error

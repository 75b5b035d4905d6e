"""The root of the error tree, its two branches, and every error with an unknown outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

Outcome = Literal["refused", "unknown"]

RETRY_AFTER = "retry_after_s"
"""The member of an error body that has the value of the header `Retry-After`."""
_LONGEST_S = 1e9
"""No call waits so long, and larger numbers may not be numbers of seconds at all."""


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The leader of a partition, as far as the refusing broker knows.

    `id` is -1 and `url` empty when the partition has no leader. `topic_id` is that of the topic
    which the broker knows, to which the epoch belongs; empty if it does not say.
    """

    id: int
    url: str
    epoch: int
    topic_id: str = ""


class LeadlineError(Exception):
    """An error with a code that all services and clients of Leadline share.

    `details` are further JSON members of the error body. `leader` may be set when a
    request was refused because of leadership or epochs.
    """

    code: ClassVar[int] = 50050
    retriable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = "refused"
    members: ClassVar[Mapping[str, type]] = {}
    """The details that every error of this class has, and their types."""

    def __init__(self, message: str, *, leader: LeaderHint | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.leader = leader
        self.details = details

    @property
    def retry_after_s(self) -> float:
        """How many seconds the server asks to wait, if it does; otherwise 0."""
        asked = self.details.get(RETRY_AFTER)
        return float(min(max(0, asked), _LONGEST_S)) if isinstance(asked, int | float) else 0.0

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return self.code // 100 if self.code > 999 else self.code

    def body(self) -> dict[str, Any]:
        """Return the JSON body in Leadline's error format."""
        body: dict[str, Any] = {
            "error_code": self.code,
            "message": self.message,
            "outcome": self.outcome,
            "retriable": self.retriable,
        }
        if self.leader is not None:
            body["leader"] = asdict(self.leader)
        return body | self.details


class Refused(LeadlineError):
    """A definite refusal: nothing was or will be appended or changed."""


class OutcomeUnknown(LeadlineError):
    """The write may or may not have taken effect; only reading can tell."""

    code = 50450
    outcome = "unknown"


class RequestTimedOut(OutcomeUnknown):
    """The records were appended, but not replicated within the timeout."""

    code = 50450


class LeadershipLost(OutcomeUnknown):
    """The records were appended, but the leader changed before they were committed."""

    code = 50451


class NotEnoughReplicasAfterAppend(OutcomeUnknown):
    """The records were appended, but the in-sync replicas fell below min.insync.replicas."""

    code = 50452


class StoreOutcomeUnknown(OutcomeUnknown):
    """The server was interrupted during the change: check its effect before you repeat it."""

    code = 50453


class RequestUnderWay(OutcomeUnknown):
    """The first request with this Idempotency-Key is still being processed."""

    code = 40960
    retriable = True


class RequestInDoubt(OutcomeUnknown):
    """The response to the first request with this Idempotency-Key was lost; check its effect."""

    code = 40961


class ConnectionLost(OutcomeUnknown):
    """The connection broke, or no response came in time, after the request was sent."""

    code = 50454
    retriable = True

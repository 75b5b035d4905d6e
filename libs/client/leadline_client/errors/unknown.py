"""Failures after which only looking can tell what happened."""

from __future__ import annotations

from leadline_client.errors.tree import OutcomeUnknown


class RequestTimedOut(OutcomeUnknown):
    """Appended, but not replicated within the time allowed."""

    code = 50450


class LeadershipLost(OutcomeUnknown):
    """Appended, but leadership went elsewhere before the records were committed."""

    code = 50451


class NotEnoughReplicasAfterAppend(OutcomeUnknown):
    """Appended, but the in-sync replicas fell below min.insync.replicas."""

    code = 50452


class StoreOutcomeUnknown(OutcomeUnknown):
    """The server was cut short in the middle of a change: look before repeating it."""

    code = 50453


class RequestUnderWay(OutcomeUnknown):
    """The first request with this Idempotency-Key has not been answered yet."""

    code = 40960
    retriable = True


class RequestInDoubt(OutcomeUnknown):
    """The answer to the first request with this Idempotency-Key was lost; look what it did."""

    code = 40961


class ConnectionLost(OutcomeUnknown):
    """The connection broke, or no answer came in time, after a request was sent."""

    code = 50454
    retriable = True

"""Failures with an unknown outcome: only a read can tell whether the write took effect."""

from __future__ import annotations

from leadline_client.errors.tree import OutcomeUnknown


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

"""Refusals that any service may give."""

from __future__ import annotations

from leadline_client.errors.tree import Refused


class InvalidRequest(Refused):
    """A field is missing, of the wrong type or out of range; `fields` names it."""

    code = 40050


class PolicyViolation(Refused):
    """The request is well-formed, but the state or the rules of the cluster forbid it."""

    code = 40002


class UnsupportedFormat(Refused):
    """The route does not accept the content type of the body."""

    code = 41550


class Unauthorized(Refused):
    """Credentials are missing or wrong."""

    code = 40101


class Forbidden(Refused):
    """The caller's role does not allow this."""

    code = 40301


class NotFound(Refused):
    """No such resource or route."""

    code = 404


class UnknownTopic(Refused):
    """The topic does not exist, as far as this server knows."""

    code = 40403
    retriable = True


class UnknownPartition(Refused):
    """The topic exists but has no such partition."""

    code = 40402


class MethodNotAllowed(Refused):
    """The route exists, but not with this method."""

    code = 405


class BodyTooLarge(Refused):
    """The body exceeds the limit of the route."""

    code = 41350


class InternalError(Refused):
    """The server failed before any effect."""

    code = 50050


class Unreachable(Refused):
    """No connection could be made, so nothing was sent (raised by clients only)."""

    code = 50356
    retriable = True

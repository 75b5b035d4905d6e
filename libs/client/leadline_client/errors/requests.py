"""Refusals that any service may give, and refusals of administrative requests."""

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
    """The request shows no token or certificate, or one that is wrong, revoked or expired."""

    code = 40150


class Forbidden(Refused):
    """No role that the sender was granted allows this."""

    code = 40350


class TokenNotSent(Refused):
    """A token goes only over https, or to this machine; nothing was sent (clients only)."""

    code = 42650

    @classmethod
    def to(cls, scheme: str, host: str | None) -> TokenNotSent:
        """Return the error of a client that was to send its token to `host`."""
        return cls(
            f"{host} is addressed by {scheme}, and others could read the token on its way: "
            "nothing was sent; use an https address"
        )


class ForeignProducerId(Refused):
    """The producer id was allocated to another user: allocate one with `POST /v1/producer-ids`."""

    code = 40353


class HostNotAllowed(Refused):
    """The `Host` header names another server: `listen.allowed.hosts` lists further names."""

    code = 40352


class OriginNotAllowed(Refused):
    """A page of another origin made the request: `listen.allowed.origins` lists allowed ones."""

    code = 40351


class ClusterChanged(Refused):
    """Another cluster is at this address than the one that the client knows.

    The cluster was wiped and recreated, or another one has its addresses now. Positions, producer
    ids and topic ids of the client mean nothing there: make a new client.
    """

    code = 42152

    @classmethod
    def between(cls, known: str, found: str) -> ClusterChanged:
        """Return the error of a client of the cluster `known` that found another one."""
        return cls(
            f"this client belongs to cluster {known}, but cluster {found} has its address now: "
            "make a new client",
            known_cluster_id=known,
            cluster_id=found,
        )


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


class QuotaExceeded(Refused):
    """The user has used up a quota: repeat the request after `retry_after_s` seconds.

    The header `Retry-After` has the same number, rounded up.
    """

    code = 42950
    retriable = True


class RequestTooSlow(Refused):
    """The head or the body of the request did not arrive in time."""

    code = 40850
    retriable = True


class UrlTooLong(Refused):
    """The URL exceeds 8 KiB."""

    code = 41450


class HeadTooLarge(Refused):
    """The request has too many headers, or they exceed `request.head.max.bytes`."""

    code = 43150


class InternalError(Refused):
    """The server failed before any effect."""

    code = 50050


class Unreachable(Refused):
    """No connection could be made, so nothing was sent (raised by clients only)."""

    code = 50356
    retriable = True


class UnusableClientCredentials(Unreachable, ValueError):
    """A client's token, certificate or authorities cannot be used (raised by clients only)."""

    code = 50370
    retriable = False


class ServerNotTrusted(Unreachable):
    """The server's certificate is refused, so nothing was sent (raised by clients only).

    It is not of an authority that the client trusts, is not valid now, or names another host.
    """

    code = 50369
    retriable = False


class TopicDeletionPending(Refused):
    """A topic of this name is still being deleted."""

    code = 40950
    retriable = True


class PartitionRemovalPending(Refused):
    """Partitions of the topic are still being removed."""

    code = 40990
    retriable = True


class ReassignmentInProgress(Refused):
    """The partition is being reassigned already: cancel that first, or retarget it."""

    code = 40980


class TaskIsOver(Refused):
    """The task has ended and can no longer be changed."""

    code = 40981


class StalePlan(Refused):
    """The plan was applied already, or the state that it is based on has changed: plan again."""

    code = 40982


class BrokerInUse(Refused):
    """The broker is live, or replicas are assigned to it: it cannot be forgotten."""

    code = 40984


class StaleVersion(Refused):
    """The resource has changed since the version that the request names."""

    code = 41250


class IdempotencyKeyReused(Refused):
    """The Idempotency-Key was used for another request before."""

    code = 42250


class NoController(Refused):
    """No controller is active, or the active one cannot be reached."""

    code = 50350
    retriable = True


class BrokerNotAvailable(Refused):
    """The broker that has the answer cannot be reached from here."""

    code = 50371
    retriable = True


class UsersNotRead(Refused):
    """This service has not read the cluster's users from ZooKeeper yet."""

    code = 50368
    retriable = True


class HistoryUnavailable(Refused):
    """This controller cannot read its history now."""

    code = 50357
    retriable = True


class ComputationsBusy(Refused):
    """Too many what-if requests or plans are being computed."""

    code = 50365
    retriable = True


class TooManyConnections(Refused):
    """The service, or this peer's address, has as many connections as allowed."""

    code = 50366
    retriable = True


class TooManyBodies(Refused):
    """The bodies of all requests together exceed `queued.max.request.bytes`, or slow ones half."""

    code = 50363
    retriable = True

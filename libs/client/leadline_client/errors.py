"""The one error tree of Leadline: code, HTTP status, outcome, retriable.

    LeadlineError
    ├── Refused                  definite: nothing was, or will be, appended or changed
    │   ├── InvalidRequest 40050, PolicyViolation 40002, CorruptBatch 40051, UnsupportedFormat 41550
    │   ├── Unauthorized 40101, Forbidden 40301
    │   ├── UnknownTopic 40403, UnknownPartition 40402, NotFound 404
    │   ├── PartitionRemovalPending 40990
    │   ├── TopicDeletionPending 40950, FencedLeaderEpoch 40951, UnknownLeaderEpoch 40952,
    │   │   StaleControllerEpoch 40953, StaleIncarnation 40954, TopicIdMismatch 40955,
    │   │   OutOfOrderSequence 40956, ProducerFenced 40957, FetchSessionUnknown 40958
    │   ├── InvalidSubscription 40052, UnknownGroup 40450, UnknownMember 40451,
    │   │   StaleGeneration 40970, RebalanceInProgress 40971, GroupNotEmpty 40972,
    │   │   FencedInstance 40973, GroupFull 40974, PartitionNotOwned 40975,
    │   │   ConsumerRebalanceFailed 40976
    │   ├── ReassignmentInProgress 40980, TaskIsOver 40981, StalePlan 40982
    │   ├── IdempotencyKeyReused 42250
    │   ├── StaleVersion 41250, BodyTooLarge 41350, OffsetOutOfRange 41650
    │   ├── NotLeader 42150, NotCoordinator 42151
    │   └── NoController 50350, LeaderNotAvailable 50351, NotEnoughReplicas 50352,
    │       BrokerFenced 50353, OffsetNotAvailable 50354, StorageFailed 50355,
    │       Unreachable 50356 (raised by clients only), CoordinatorNotAvailable 50360,
    │       AllKnownBrokersNotAvailable 50361 (raised by clients only), InternalError 50050
    └── OutcomeUnknown           the write may or may not have happened
        ├── RequestTimedOut 50450, LeadershipLost 50451, NotEnoughReplicasAfterAppend 50452
        ├── RequestUnderWay 40960, RequestInDoubt 40961
        └── StoreOutcomeUnknown 50453, ConnectionLost 50454 (raised by clients only)

A code has five digits: the HTTP status and two more, from 50 up where the code
is Leadline's own. `outcome` tells a writer what a failure means (rule R15): a
refusal came before any effect; an unknown outcome must never be reported as
success or as failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Outcome = Literal["refused", "unknown"]


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """Where the leader of a partition is, as the refusing broker knows it.

    `id` is -1 and `url` empty when the partition has no leader.
    """

    id: int
    url: str
    epoch: int


class LeadlineError(Exception):
    """An error with a code that every Leadline service and client agrees on.

    `details` are further JSON members of the error body. `leader` is set where
    the refusal is about leadership or epochs.
    """

    code: ClassVar[int] = 50050
    retriable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = "refused"

    def __init__(self, message: str, *, leader: LeaderHint | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.leader = leader
        self.details = details

    @property
    def status(self) -> int:
        """The HTTP status that goes with the code."""
        return self.code // 100 if self.code > 999 else self.code

    def body(self) -> dict[str, Any]:
        """Return the JSON body in the house format."""
        body: dict[str, Any] = {
            "error_code": self.code,
            "message": self.message,
            "outcome": self.outcome,
            "retriable": self.retriable,
        }
        if self.leader is not None:
            body["leader"] = {
                "id": self.leader.id,
                "url": self.leader.url,
                "epoch": self.leader.epoch,
            }
        return body | self.details


class Refused(LeadlineError):
    """A definite refusal: nothing was, or will be, appended or changed."""


class OutcomeUnknown(LeadlineError):
    """The write may or may not have taken effect; only reading can tell."""

    code = 50450
    outcome = "unknown"


class InvalidRequest(Refused):
    """A field is missing, of the wrong type or out of its range; `fields` names it."""

    code = 40050


class PolicyViolation(Refused):
    """Well-formed, but against the state or the rules of the cluster."""

    code = 40002


class InvalidSubscription(Refused):
    """What a consumer asks of its group makes no sense, or does not fit the group's other members.

    It names topics or one pattern of RE2's syntax, an assignor, and a protocol; all
    members of a group have the same assignor and protocol.
    """

    code = 40052


class CorruptBatch(Refused):
    """A record batch is truncated, of a wrong format, or fails its CRC."""

    code = 40051


class UnsupportedFormat(Refused):
    """The content type of the body is not one that the route reads."""

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


class UnknownGroup(Refused):
    """There is no such consumer group, or nothing is known of it."""

    code = 40450


class UnknownMember(Refused):
    """The consumer is not, or no longer, a member of the group: join again without a member id."""

    code = 40451


class MethodNotAllowed(Refused):
    """The route exists, but not with this method."""

    code = 405


class TopicDeletionPending(Refused):
    """A topic of this name is still being deleted."""

    code = 40950
    retriable = True


class PartitionRemovalPending(Refused):
    """Partitions of the topic are still being removed."""

    code = 40990
    retriable = True


class FencedLeaderEpoch(Refused):
    """The request states a leader epoch older than the current one."""

    code = 40951
    retriable = True


class UnknownLeaderEpoch(Refused):
    """The request states a leader epoch newer than this server has seen."""

    code = 40952
    retriable = True


class StaleControllerEpoch(Refused):
    """The command comes from a controller that has been succeeded."""

    code = 40953


class StaleIncarnation(Refused):
    """The request is meant for, or comes from, another incarnation of the broker."""

    code = 40954


class TopicIdMismatch(Refused):
    """The topic was deleted and created again since the sender looked."""

    code = 40955
    retriable = True


class OutOfOrderSequence(Refused):
    """An idempotent producer skipped a sequence number."""

    code = 40956


class ProducerFenced(Refused):
    """A newer instance of the idempotent producer has taken over."""

    code = 40957


class FetchSessionUnknown(Refused):
    """The incremental fetch session is not known; start a full one."""

    code = 40958
    retriable = True


class StaleGeneration(Refused):
    """The generation or the coordinator epoch is not the member's present one.

    Wait for the next Start, and commit again what is still owned after it.
    """

    code = 40970


class RebalanceInProgress(Refused):
    """The group is being rebalanced; what was asked for has to wait until it is settled."""

    code = 40971
    retriable = True


class GroupNotEmpty(Refused):
    """The group has members; what was asked for can only be done to a group without any."""

    code = 40972


class FencedInstance(Refused):
    """Another consumer with this instance id has taken this member's place."""

    code = 40973


class GroupFull(Refused):
    """The group has as many members as group.max.size allows."""

    code = 40974


class PartitionNotOwned(Refused):
    """The member does not own the partition that it commits an offset of."""

    code = 40975


class ConsumerRebalanceFailed(Refused):
    """The group could not be rebalanced within max.rebalance.retries; who did not answer is out.

    A consumer that is told so may join again.
    """

    code = 40976
    retriable = True


class ReassignmentInProgress(Refused):
    """The partition is being reassigned already: cancel that first, or ask to retarget it."""

    code = 40980


class TaskIsOver(Refused):
    """The task has ended, so that nothing of it can be changed any more."""

    code = 40981


class StalePlan(Refused):
    """The plan was applied already, or what it is based on has changed since: plan again."""

    code = 40982


class StaleVersion(Refused):
    """The resource changed since the version that the request names."""

    code = 41250


class IdempotencyKeyReused(Refused):
    """The Idempotency-Key was given with another request before."""

    code = 42250


class BodyTooLarge(Refused):
    """The body exceeds the limit of the route."""

    code = 41350


class OffsetOutOfRange(Refused):
    """The offset is before the log start or beyond the log end."""

    code = 41650


class NotLeader(Refused):
    """This broker does not lead the partition; `leader` says who does. Nothing was appended."""

    code = 42150
    retriable = True


class NotCoordinator(Refused):
    """This process is not the active coordinator: consult a broker and ask the one it names."""

    code = 42151
    retriable = True


class InternalError(Refused):
    """A fault of the server, before any effect."""

    code = 50050


class NoController(Refused):
    """No controller is active, or the active one cannot be reached."""

    code = 50350
    retriable = True


class LeaderNotAvailable(Refused):
    """The partition has no leader at present."""

    code = 50351
    retriable = True


class NotEnoughReplicas(Refused):
    """The in-sync replicas are fewer than min.insync.replicas. Nothing was appended."""

    code = 50352
    retriable = True


class BrokerFenced(Refused):
    """The broker has no valid lease or awaits its grant from the controller."""

    code = 50353
    retriable = True


class OffsetNotAvailable(Refused):
    """The new leader cannot state the latest offset yet (KIP-207)."""

    code = 50354
    retriable = True


class StorageFailed(Refused):
    """The disk is full or failed; nothing was appended."""

    code = 50355


class HistoryUnavailable(Refused):
    """This controller cannot read its history at the moment."""

    code = 50357
    retriable = True


class Unreachable(Refused):
    """No connection could be made, so nothing was sent (raised by clients only)."""

    code = 50356
    retriable = True


class CoordinatorNotAvailable(Refused):
    """No coordinator is active, or it cannot be reached, or it is only just taking over."""

    code = 50360
    retriable = True


class AllKnownBrokersNotAvailable(Refused):
    """None of the brokers that the client knows answers (seed 3; raised by clients only)."""

    code = 50361
    retriable = True


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

"""Errors in the v3 API: `{"error_code", "message"}` with that API's codes.

Leadline's errors are translated by one table. `V3Error` is for what only this API distinguishes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from leadline_client import errors
from leadline_client.errors import ERRORS_BY_CODE, LeadlineError, Outcome
from leadline_common.http.errors import retry_after


class Code(NamedTuple):
    """A HTTP status and the error code that goes with it."""

    status: int
    code: int


MALFORMED: Final = Code(400, 400)
REFUSED: Final = Code(400, 40002)
UNAUTHORIZED: Final = Code(401, 40101)
FORBIDDEN: Final = Code(403, 40301)
NOT_FOUND: Final = Code(404, 404)
NO_SUCH_PARTITION: Final = Code(404, 40402)
NO_SUCH_TOPIC: Final = Code(404, 40403)
METHOD: Final = Code(405, 405)
TOO_SLOW: Final = Code(408, 408)
CONFLICT: Final = Code(409, 409)
TOO_LARGE: Final = Code(413, 413)
URL_TOO_LONG: Final = Code(414, 414)
CONTENT_TYPE: Final = Code(415, 415)
UNPROCESSABLE: Final = Code(422, 422)
INVALID_PAYLOAD: Final = Code(422, 42206)
INVALID_BATCH: Final = Code(422, 42208)
RATE_LIMIT: Final = Code(429, 429)
HEAD_TOO_LARGE: Final = Code(431, 431)
INTERNAL: Final = Code(500, 500)
NOT_RETRIABLE: Final = Code(500, 50002)
RETRIABLE: Final = Code(500, 50003)
NOT_AVAILABLE: Final = Code(503, 50302)

OUTCOME_HEADER: Final = "X-Leadline-Outcome"
"""Has the value `unknown` where a change may or may not have been made."""

_GROUPS: Final[Mapping[Code, tuple[type[LeadlineError], ...]]] = {
    MALFORMED: (errors.CorruptBatch, errors.InvalidRequest, errors.InvalidTimestamp),
    REFUSED: (
        errors.BrokerInUse,
        errors.GroupFull,
        errors.GroupNotEmpty,
        errors.InstanceInUse,
        errors.InvalidSubscription,
        errors.LogTruncated,
        errors.OffsetOutOfRange,
        errors.PartitionRemovalPending,
        errors.PolicyViolation,
        errors.ReassignmentInProgress,
        errors.StalePlan,
        errors.TaskIsOver,
        errors.TooManyGroups,
        errors.TopicDeletionPending,
    ),
    UNAUTHORIZED: (errors.Unauthorized,),
    FORBIDDEN: (
        errors.Forbidden,
        errors.ForeignProducerId,
        errors.HostNotAllowed,
        errors.OriginNotAllowed,
        errors.WrongMemberSecret,
    ),
    NOT_FOUND: (
        errors.ClusterChanged,
        errors.NotFound,
        errors.UnknownGroup,
        errors.UnknownMember,
        errors.UnknownStaged,
    ),
    NO_SUCH_PARTITION: (errors.UnknownPartition,),
    NO_SUCH_TOPIC: (errors.UnknownTopic,),
    METHOD: (errors.MethodNotAllowed,),
    TOO_SLOW: (errors.RequestTooSlow,),
    CONFLICT: (errors.PollSuperseded, errors.RequestInDoubt, errors.RequestUnderWay),
    TOO_LARGE: (errors.BodyTooLarge,),
    URL_TOO_LONG: (errors.UrlTooLong,),
    CONTENT_TYPE: (errors.UnsupportedFormat,),
    UNPROCESSABLE: (
        errors.DeserializationFailed,
        errors.IdempotencyKeyReused,
        errors.SerializationFailed,
    ),
    RATE_LIMIT: (errors.QuotaExceeded,),
    HEAD_TOO_LARGE: (errors.HeadTooLarge,),
    INTERNAL: (errors.InternalError,),
    NOT_RETRIABLE: (
        errors.FencedInstance,
        errors.OutOfOrderSequence,
        errors.PartitionNotOwned,
        errors.ProducerFenced,
        errors.PublishMismatch,
        errors.PublishOutOfOrder,
        errors.StorageFailed,
        errors.UnreadableBatch,
    ),
    RETRIABLE: (
        errors.ConnectionLost,
        errors.ConsumerRebalanceFailed,
        errors.CoordinatorNotAvailable,
        errors.DamagedBatch,
        errors.FencedLeaderEpoch,
        errors.FetchSessionUnknown,
        errors.GroupUnreadable,
        errors.HistoryUnavailable,
        errors.LeaderNotAvailable,
        errors.LeadershipLost,
        errors.NoController,
        errors.NotCoordinator,
        errors.NotEnoughReplicas,
        errors.NotEnoughReplicasAfterAppend,
        errors.NotLeader,
        errors.OffsetNotAvailable,
        errors.RebalanceInProgress,
        errors.RequestTimedOut,
        errors.StagingFull,
        errors.StaleControllerEpoch,
        errors.StaleGeneration,
        errors.StaleIncarnation,
        errors.StaleVersion,
        errors.StoreOutcomeUnknown,
        errors.TooManyProducers,
        errors.TopicIdMismatch,
        errors.UnknownControllerEpoch,
        errors.UnknownLeaderEpoch,
    ),
    NOT_AVAILABLE: (
        errors.AllKnownBrokersNotAvailable,
        errors.BrokerFenced,
        errors.BrokerNotAvailable,
        errors.ComputationsBusy,
        errors.ServerNotTrusted,
        errors.TokenNotSent,
        errors.TooManyBodies,
        errors.TooManyChannels,
        errors.TooManyConnections,
        errors.Unreachable,
        errors.UnusableClientCredentials,
        errors.UsersNotRead,
    ),
}

CODES: Final[Mapping[type[LeadlineError], Code]] = {
    error: code for code, group in _GROUPS.items() for error in group
}
"""The status and the code of each error of Leadline in this API."""


class ErrorResponse(BaseModel):
    """The body of every error."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"error_code": 40403, "message": "there is no topic orders"}}
    )

    error_code: int
    message: str


class V3Error(Exception):
    """An error that has no class of its own in Leadline's error tree; mostly a refusal."""

    def __init__(self, code: Code, message: str, outcome: Outcome = "refused") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.outcome = outcome

    @classmethod
    def of(cls, error: LeadlineError, before: str = "") -> V3Error:
        """Return the same error in this API, with the same outcome; `before` begins its message."""
        return cls(code_of(error), before + message_of(error), error.outcome)


def code_of(error: LeadlineError) -> Code:
    """Return the status and the code of an error; one of a newer release keeps its kind."""
    known = CODES.get(type(error))
    if known is not None:
        return known
    if error.status < INTERNAL.status:
        return Code(error.status, error.status)
    return RETRIABLE if error.retriable else INTERNAL


def message_of(error: LeadlineError) -> str:
    """Return the message of an error, which says so if its outcome is not known."""
    if error.outcome == "unknown":
        return f"the outcome is unknown, the change may or may not be made: {error.message}"
    return error.message


def response_of(error: LeadlineError | V3Error) -> Response:
    """Return the response for an error."""
    if isinstance(error, V3Error):
        response = _response(error.code, error.message)
    else:
        response = _response(code_of(error), message_of(error))
        response.headers.update(retry_after(error))
    if error.outcome == "unknown":
        response.headers[OUTCOME_HEADER] = "unknown"
    return response


def _response(code: Code, message: str) -> Response:
    body = json.dumps({"error_code": code.code, "message": message})
    return Response(body, code.status, media_type="application/json")


def translated(status: int, content: bytes) -> Response:
    """Return the response for an error response in any format; one of this API keeps its code."""
    try:
        body: Any = json.loads(content)
    except ValueError:
        body = None
    fields: dict[str, Any] = body if isinstance(body, dict) else {}
    message = str(fields.get("message", f"HTTP status {status}"))
    code = fields.get("error_code")
    if code in ERRORS_BY_CODE:
        return response_of(ERRORS_BY_CODE[code](message))
    return _response(Code(status, code if isinstance(code, int) else status), message)


def validation_error(error: RequestValidationError, *, has_body: bool) -> V3Error:
    """Return the error for parameters or a body that the model of the operation refuses."""
    problem = error.errors()[0]
    location = problem["loc"]
    if location == ("body",) and not has_body:
        return V3Error(INVALID_PAYLOAD, "the request has no body")
    if problem["type"] == "extra_forbidden":
        return V3Error(UNPROCESSABLE, f"{location[-1]}: there is no such member")
    if problem["type"] == "json_invalid":
        return V3Error(MALFORMED, f"not JSON: {problem['ctx']['error']}")
    field = ".".join(map(str, location[1:])) or str(location[0])
    return V3Error(MALFORMED, f"{field}: {problem['msg']}")

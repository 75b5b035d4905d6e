"""Polls of consumers of a group, for any language that has HTTP and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from starlette.types import Receive, Scope, Send

from leadline_broker.api.fetch import MAX_FETCH_BYTES, MIB, JsonFetchedHeader
from leadline_broker.api.json_answers import JsonShape, epoch_before, rendered_records
from leadline_broker.api.json_records import parse_json
from leadline_broker.api.produce import media_type_of
from leadline_broker.runtime.serving.batch_checks import SMALL_BYTES, BatchChecks
from leadline_broker.runtime.serving.group_polls import GroupPoll, GroupPolls, Polled
from leadline_client.errors import (
    BodyTooLarge,
    BrokerFenced,
    ConnectionLost,
    CoordinatorNotAvailable,
    FencedInstance,
    Forbidden,
    GroupUnreadable,
    LeadlineError,
    PollSuperseded,
    QuotaExceeded,
    RebalanceInProgress,
    StoreOutcomeUnknown,
    UnknownGroup,
    UnknownMember,
    UnreadableBatch,
    UnsupportedFormat,
    WrongMemberSecret,
)
from leadline_client.wire import TopicPartition
from leadline_common.access.rights import Action
from leadline_common.api.group_models import MEMBER_SECRET
from leadline_common.api.groups import GROUP_PARAMETER, GROUPS_TAG, MEMBER_PARAMETER
from leadline_common.group_commits import CommittedRow, Name, Number, Offset
from leadline_common.group_polls import (
    MAX_SYNC_BYTES,
    CursorText,
    PartitionOfTopic,
    Position,
    Secret,
)
from leadline_common.http.access import require_still
from leadline_common.http.bulk import read_body, send_body
from leadline_common.http.middleware import limit_body
from leadline_common.http.operation import Body, Operation
from leadline_common.http.quotas import payer_of
from leadline_common.plain_json import encodable
from leadline_common.quotas.gate import QuotaGate
from leadline_common.quotas.limits import Quota
from leadline_common.rpc import JSON

_MAX_WAIT_MS = 30_000


class SeekRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read a partition from this offset on, instead of the position of the cursor."""

    topic: Name
    partition: Number
    offset: Offset


class PollBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a consumer has received, and how much it wants.

    `cursor` is that of the last response which it received; absent in its first poll. All records
    of that response are processed. With `commit` their offsets are committed.
    """

    secret: Secret
    cursor: CursorText | None = None
    commit: bool = True
    max_records: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 500
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_FETCH_BYTES)] = MIB
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=_MAX_WAIT_MS)] = 5_000
    format: Literal["string", "json", "base64"] = "string"
    seek: Annotated[list[SeekRow], msgspec.Meta(max_length=100_000)] = []


class PolledRecord(msgspec.Struct):
    """A record; key and value are in the requested format."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: list[JsonFetchedHeader]


class OwnedPartition(msgspec.Struct):
    """A partition that the consumer owns; `position` is the offset of the next record to read."""

    topic: str
    partition: int
    position: int | None


class ResetPosition(msgspec.Struct):
    """A position that the log does not have (any more), and where the consumer goes on instead."""

    topic: str
    partition: int
    position: int
    reset_to: int


class PartitionError(msgspec.Struct):
    """Why a partition cannot be read at the moment, or at this position."""

    topic: str
    partition: int
    error_code: int
    message: str
    retriable: bool


class PollAnswer(msgspec.Struct):
    """Records of the partitions that the consumer owns, and what has changed.

    The records may be processed until `lease_ms` after the poll was sent. `revoked` are partitions
    to give up: the next poll says that this is done. `not_committed` are refused commits.
    """

    records: list[PolledRecord]
    assignment: list[OwnedPartition]
    revoked: list[PartitionOfTopic]
    generation: int
    coordinator_epoch: int
    lease_ms: int
    cursor: str
    not_committed: list[CommittedRow] = []
    resets: list[ResetPosition] = []
    errors: list[PartitionError] = []


OPERATION = Operation(
    method="POST",
    path="/v1/groups/{group}/consumers/{member}/poll",
    name="poll_consumer",
    summary="Poll records as a consumer of a group",
    description=(
        "Send the request to any broker. It returns records of the partitions that the consumer "
        "owns, and waits up to `wait_ms`, at most a third of the session timeout, if there are "
        "none. It returns earlier if the assignment changes.\n\n"
        "**Cursor.** The next poll states the `cursor` of the last response that was received. It "
        "means: the records of that response are processed, and the partitions in its `revoked` "
        "are given up. With `commit`, their offsets are committed first. A response that is lost "
        "loses no record: repeat the poll with the same cursor, at any broker. The first poll has "
        "no cursor, and begins at the committed offsets, or else where `offset_reset` says. With "
        "`latest`, the position is told at once, and records come with the next poll.\n\n"
        "**Lease.** The records may be processed until `lease_ms` after the poll was *sent*, by "
        "the consumer's own clock. After that another consumer may read them: discard the "
        "rest, also of a response that arrives late. A consumer that does not poll within its "
        "session timeout is removed (`UnknownMember`): it joins again. One whose place another "
        "consumer with its instance id has taken (`FencedInstance`) ends: if it joined again, the "
        "two would take the place from each other.\n\n"
        "Poll one at a time. A poll that is still waiting when another one comes is answered with "
        "`PollSuperseded`. Before it leaves, a consumer polls with `max_records` 0, to commit.\n\n"
        "**Quota.** A poll that is refused with 429 commits nothing and extends no lease. While it "
        "waits, a consumer polls with `max_records` 0, which takes no quota of bytes."
    ),
    tags=[GROUPS_TAG],
    parameters=[GROUP_PARAMETER, MEMBER_PARAMETER],
    requests=[Body(JSON, "", PollBody, PollBody(MEMBER_SECRET, wait_ms=0))],
    responses=[
        Body(
            JSON,
            "Records, possibly none",
            PollAnswer,
            PollAnswer(
                [PolledRecord("orders", 0, 41, 1790000000000, "customer-7", "two coffees", [])],
                [OwnedPartition("orders", 0, 42)],
                [],
                7,
                3,
                30_000,
                "W1szLDEyLDQsOV0sNyx7fV0=",
            ),
        )
    ],
    errors=[
        BodyTooLarge,
        UnsupportedFormat,
        QuotaExceeded,
        Forbidden,
        WrongMemberSecret,
        UnknownGroup,
        GroupUnreadable,
        UnknownMember,
        FencedInstance,
        RebalanceInProgress,
        PollSuperseded,
        BrokerFenced,
        CoordinatorNotAvailable,
        StoreOutcomeUnknown,
        ConnectionLost,
    ],
)
_decoder = msgspec.json.Decoder(PollBody)


@dataclass(frozen=True, slots=True)
class Polls:
    """What a poll needs of a broker."""

    polls: GroupPolls
    checks: BatchChecks


class PollEndpoint:
    """The ASGI endpoint of `OPERATION`; `polls()` raises BrokerFenced while the broker starts."""

    def __init__(self, polls: Callable[[], Polls], quotas: QuotaGate) -> None:
        self._polls = polls
        self._quotas = quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return records to a consumer."""
        limit_body(scope, MAX_SYNC_BYTES)
        if (media_type := media_type_of(scope)) != JSON:
            raise UnsupportedFormat(f"the body must be {JSON}, not {media_type}")
        body = parse_json(_decoder.decode, await read_body(receive))
        # Without records it only commits and extends the lease, whatever was read before.
        payer = payer_of(scope) if body.max_records else None
        self._quotas.admit(Quota.FETCH, payer)
        names = scope["path_params"]
        needed = self._polls()
        polled = await needed.polls.poll(_poll_of(names["group"], names["member"], body))
        if body.wait_ms:
            require_still(scope, Action.READ, {one.topic for one in polled.fetched})
        size = sum(len(data.records) for data in polled.fetched.values())
        answer = partial(_answer, polled, body)
        content = answer() if size <= SMALL_BYTES else await needed.checks.read_in_worker(answer)
        self._quotas.charge(Quota.FETCH, payer, len(content))
        await send_body(send, content, JSON.encode())


def _poll_of(group: str, member: str, body: PollBody) -> GroupPoll:
    return GroupPoll(
        group,
        member,
        body.secret,
        body.cursor,
        body.commit,
        body.max_records,
        body.max_bytes,
        body.wait_ms,
        {TopicPartition(row.topic, row.partition): row.offset for row in body.seek},
    )


def _answer(polled: Polled, body: PollBody) -> bytes:
    """Return the response of a poll, whose positions move beyond the records in it."""
    records = _records(polled, body)
    sync = polled.sync
    assignment = [
        OwnedPartition(*one, None if position is None else position.offset)
        for one in polled.rows()
        for position in [polled.positions.get(one)]
    ]
    answer = PollAnswer(
        [],
        assignment,
        sync.revoked,
        sync.generation,
        sync.point.epoch,
        sync.lease_ms,
        polled.cursor(),
        sync.not_committed,
        [ResetPosition(*one.partition, one.before, one.after) for one in polled.resets],
        [
            PartitionError(*one, error.code, str(encodable(error.message)), error.retriable)
            for one, error in polled.errors.items()
        ],
    )
    return msgspec.json.encode({**msgspec.structs.asdict(answer), "records": records})


def _records(polled: Polled, body: PollBody) -> list[msgspec.Raw]:
    """Return the records that fit, at least one if there is one."""
    records: list[msgspec.Raw] = []
    size = 0
    for one, data in polled.fetched.items():
        left = body.max_records - len(records)
        if left <= 0 or (records and size >= body.max_bytes):
            break
        shape = JsonShape(body.format, left, max(1, body.max_bytes - size))
        also = {"topic": one.topic, "partition": one.partition}
        position = polled.positions[one].offset
        try:
            shown, next_offset = rendered_records(data, position, shape, also)
        except UnreadableBatch as error:
            polled.errors[one] = error.within(*one)
        except LeadlineError as error:  # of a record that is not in the requested format
            polled.errors[one] = error
        else:
            polled.positions[one] = Position(next_offset, epoch_before(data, next_offset))
            records += shown
            size += sum(map(len, map(bytes, shown)))
    return records

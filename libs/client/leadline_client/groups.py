"""Consumer groups over HTTP, as flows: find the coordinator, describe, commit, administer.

`group_session.py` has the channel of a member. Flows that return a document return the
coordinator's response, which `openapi/coordinator.json` describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from leadline_client.calls import Call
from leadline_client.core import ClientCore
from leadline_client.errors import InvalidRequest, LeadlineError, error_from_body
from leadline_client.flows import Flow
from leadline_client.payloads import decoded, json_body
from leadline_client.transport import JSON
from leadline_client.wire import LogPosition, TopicPartition

PartitionOffsetMap: TypeAlias = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
"""Offsets by partition; plain (topic, partition) tuples will do."""

PartitionPositionMap: TypeAlias = (
    Mapping[TopicPartition, int | LogPosition] | Mapping[tuple[str, int], int | LogPosition]
)
"""Offsets by partition, or positions, which have the leader epoch of the record before too."""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """What a commit states about its member; the coordinator refuses outdated values (R16)."""

    member: str
    coordinator_epoch: int
    generation: int
    secret: str | None = field(default=None, repr=False)
    """What the member got with its Welcome."""


@dataclass(frozen=True, slots=True)
class ResetTo:
    """Where to reset offsets to; `timestamp` (Unix ms) and `offsets` go with these values of `to`.

    `topics` limits the reset to these topics; None means all topics of the group.
    """

    to: Literal["earliest", "latest", "timestamp", "offsets"]
    timestamp: int | None = None
    offsets: PartitionOffsetMap | None = None
    topics: tuple[str, ...] | None = None


def coordinator_address(core: ClientCore) -> Flow[str]:
    """Return the coordinator's address; ask brokers for it if it is not known.

    Raises:
        AllKnownBrokersNotAvailable: no broker answered.
        CoordinatorNotAvailable: no coordinator is active.

    """
    if core.coordinator.address() is None:
        yield from core.refresh(core.coordinator)
    address = core.coordinator.address()
    if address is None:
        raise core.coordinator.unavailable()
    return address


def list_groups(core: ClientCore) -> Flow[dict[str, Any]]:
    """Return every group with its state."""
    return (yield from _ask(core, "GET", "/v1/groups"))


def describe_group(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Return state, generation, members and their partitions; raises UnknownGroup."""
    return (yield from _ask(core, "GET", _path(group)))


def group_lag(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Return committed offset, end offset and lag (records) of every partition."""
    return (yield from _ask(core, "GET", _path(group, "lag")))


def group_offsets(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Return the committed offsets."""
    return (yield from _ask(core, "GET", _path(group, "offsets")))


def committed(core: ClientCore, group: str) -> Flow[dict[TopicPartition, int]]:
    """Return the committed offsets by partition."""
    return decoded(_committed_offsets, (yield from group_offsets(core, group)))


def commit_offsets(
    core: ClientCore,
    group: str,
    offsets: PartitionPositionMap,
    metadata: GroupMetadata | None = None,
    *,
    sequence: int | None = None,
    topic_ids: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> Flow[None]:
    """Commit the offset of the next record to be consumed of each partition.

    A position with a leader epoch lets the next consumer notice a truncation below it. Without
    `metadata`, the group must have no members.

    `sequence` rises with each commit of a member. A commit that arrives after a later one, because
    it was delayed on its way, succeeds without effect. `topic_ids` has the ids of the topics that
    were read: if one was recreated meanwhile, its offsets are refused.

    Raises:
        StaleGeneration, UnknownMember, WrongMemberSecret: nothing was committed (R16).
        PartitionNotOwned, TopicIdMismatch: the partition that the error names was not committed;
            others may be.

    """
    body: dict[str, Any] = {"offsets": _position_rows(offsets)}
    if metadata is not None:
        body |= asdict(metadata)
    if sequence is not None:
        body["sequence"] = sequence
    if topic_ids:
        body["topic_ids"] = dict(topic_ids)
    call = _command("POST", _path(group, "offsets"), body, repeatable=True)
    document = yield from core.document(core.coordinator, call, timeout_s)
    refusal = decoded(_refused_commit, document)
    if refusal is not None:
        raise refusal


def reset_offsets(
    core: ClientCore, group: str, where: ResetTo, *, dry_run: bool = False
) -> Flow[dict[str, Any]]:
    """Reset the committed offsets of an inactive group; raises GroupNotEmpty."""
    body: dict[str, Any] = {"to": where.to, "dry_run": dry_run}
    if where.timestamp is not None:
        body["timestamp"] = where.timestamp
    if where.offsets is not None:
        body["offsets"] = _offset_rows(where.offsets)
    if where.topics is not None:
        body["topics"] = list(where.topics)
    path = _path(group, "offsets", "reset")
    return (yield from _ask(core, "POST", path, body, repeatable=dry_run))


def rebalance_group(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Start a rebalance of the group."""
    return (yield from _ask(core, "POST", _path(group, "rebalance")))


def delete_group(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Delete an inactive group and its offsets; raises GroupNotEmpty."""
    return (yield from _ask(core, "DELETE", _path(group)))


def evict_member(core: ClientCore, group: str, member: str) -> Flow[dict[str, Any]]:
    """Evict a member from its group; its partitions go to the other members."""
    return (yield from _ask(core, "DELETE", _path(group, "members", member)))


def leave_group(
    core: ClientCore, group: str, member: str, secret: str | None, *, timeout_s: float
) -> Flow[None]:
    """Leave the group; the member must have stopped consuming."""
    path = _path(group, "members", member, "leave")
    call = _command("POST", path, {"secret": secret}, repeatable=True)
    yield from core.call(core.coordinator, call, timeout_s)


def _ask(
    core: ClientCore,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    repeatable: bool = False,
) -> Flow[dict[str, Any]]:
    call = _command(method, path, body, repeatable=repeatable or method == "GET")
    return (yield from core.document(core.coordinator, call))


def _command(method: str, path: str, body: Mapping[str, Any] | None, *, repeatable: bool) -> Call:
    if body is None:
        return Call(method, path, repeatable=repeatable)
    return Call(method, path, {}, {"content-type": JSON}, json_body(body), repeatable)


def group_in_path(group: str) -> str:
    """Return a group's name as part of a path.

    Raises:
        InvalidRequest: no path can name it, as servers take %2F for a slash between parts.

    """
    if not group or "/" in group:
        raise InvalidRequest(f"group: a name has at least 1 character and no '/': {group!r}")
    return quote(group, safe="")


def _path(group: str, *rest: str) -> str:
    below = (quote(segment, safe="") for segment in rest)
    return "/".join(("/v1/groups", group_in_path(group), *below))


def _committed_offsets(document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(row["topic"], row["partition"]): row["offset"] for row in document["offsets"]
    }


def _refused_commit(document: Mapping[str, Any]) -> LeadlineError | None:
    """Return the error of the first partition whose offset was not committed."""
    refused = (row for row in document["offsets"] if row["error_code"])
    return next((error_from_body(row["error_code"] // 100, row) for row in refused), None)


def _position_rows(positions: PartitionPositionMap) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (topic, partition), position in sorted(positions.items()):
        known = position if isinstance(position, LogPosition) else LogPosition(position)
        row = {"topic": topic, "partition": partition, "offset": known.offset}
        if known.leader_epoch is not None:
            row["leader_epoch"] = known.leader_epoch
        rows.append(row)
    return rows


def _offset_rows(offsets: PartitionOffsetMap) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in sorted(offsets.items())
    ]

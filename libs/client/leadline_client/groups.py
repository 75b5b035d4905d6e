"""Consumer groups over HTTP, as flows: consult, look, commit, administer.

The channel of a member is not here but in `group_session.py`. What answers with a
document answers with the coordinator's own, as `openapi/coordinator.json` says it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from leadline_client.calls import Call
from leadline_client.core import ClientCore
from leadline_client.errors import error_from_body
from leadline_client.flows import Flow
from leadline_client.membership import TopicPartition
from leadline_client.transport import JSON


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """As whom a member commits (R16): the coordinator refuses what is not its present view."""

    member: str
    coordinator_epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class ResetTo:
    """Where offsets are put: `timestamp` (Unix ms) and `offsets` go with the kinds of that name."""

    to: Literal["earliest", "latest", "timestamp", "offsets"]
    timestamp: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    topics: tuple[str, ...] | None = None


def find_coordinator(core: ClientCore) -> Flow[str]:
    """Return the coordinator's address, consulting any broker unless it is known (seed 3).

    Raises:
        AllKnownBrokersNotAvailable: no broker answers.
        CoordinatorNotAvailable: brokers know of none.

    """
    if core.coordinator.address() is None:
        yield from core.refresh(core.coordinator)
    address = core.coordinator.address()
    if address is None:
        raise core.coordinator.missing()
    return address


def list_groups(core: ClientCore) -> Flow[dict[str, Any]]:
    """Return every group with its state."""
    return (yield from _ask(core, "GET", "/v1/groups"))


def describe_group(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Return state, generation, members and what each owns; raises UnknownGroup."""
    return (yield from _ask(core, "GET", _path(group)))


def group_lag(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Return committed offset, end and lag of every partition, in records."""
    return (yield from _ask(core, "GET", _path(group, "lag")))


def group_offsets(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Return the committed offsets."""
    return (yield from _ask(core, "GET", _path(group, "offsets")))


def committed(core: ClientCore, group: str) -> Flow[dict[TopicPartition, int]]:
    """Return the committed offsets by partition."""
    document = yield from group_offsets(core, group)
    return {(row["topic"], row["partition"]): row["offset"] for row in document["offsets"]}


def commit_offsets(
    core: ClientCore,
    group: str,
    offsets: Mapping[TopicPartition, int],
    standing: GroupMetadata | None = None,
    *,
    timeout_s: float | None = None,
) -> Flow[None]:
    """Commit the offset of the next record to be consumed of each partition.

    Without a standing the group must have no members.

    Raises:
        StaleGeneration, UnknownMember: nothing is committed, it is somebody else's turn (R16).
        PartitionNotOwned: the same, for the partition that the error names; others may be.

    """
    body: dict[str, Any] = {"offsets": _offset_rows(offsets)}
    if standing is not None:
        body |= {
            "member": standing.member,
            "coordinator_epoch": standing.coordinator_epoch,
            "generation": standing.generation,
        }
    call = _command("POST", _path(group, "offsets"), body, repeatable=True)
    response = yield from core.call(core.coordinator, call, timeout_s)
    for row in json.loads(response.body)["offsets"]:
        if row["error_code"]:
            raise error_from_body(row["error_code"] // 100, row)


def reset_offsets(
    core: ClientCore, group: str, where: ResetTo, *, dry_run: bool = False
) -> Flow[dict[str, Any]]:
    """Put the committed offsets of an inactive group elsewhere; raises GroupNotEmpty."""
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
    """Have the group's partitions shared out anew."""
    return (yield from _ask(core, "POST", _path(group, "rebalance")))


def delete_group(core: ClientCore, group: str) -> Flow[dict[str, Any]]:
    """Forget an inactive group and its offsets; raises GroupNotEmpty."""
    return (yield from _ask(core, "DELETE", _path(group)))


def evict_member(core: ClientCore, group: str, member: str) -> Flow[dict[str, Any]]:
    """Put a member out of its group: its partitions go to the others."""
    return (yield from _ask(core, "DELETE", _path(group, "members", member)))


def leave_group(core: ClientCore, group: str, member: str, *, timeout_s: float) -> Flow[None]:
    """Leave cleanly: the member consumes nothing any more."""
    call = _command("POST", _path(group, "members", member, "leave"), {}, repeatable=True)
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
    response = yield from core.call(core.coordinator, call)
    document: dict[str, Any] = json.loads(response.body) if response.body else {}
    return document


def _command(method: str, path: str, body: Mapping[str, Any] | None, *, repeatable: bool) -> Call:
    if body is None:
        return Call(method, path, repeatable=repeatable)
    content = json.dumps(body, separators=(",", ":")).encode()
    return Call(method, path, {}, {"content-type": JSON}, content, repeatable)


def _path(group: str, *rest: str) -> str:
    return "/".join(("/v1/groups", *(quote(one, safe="") for one in (group, *rest))))


def _offset_rows(offsets: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": number, "offset": offset}
        for (topic, number), offset in sorted(offsets.items())
    ]

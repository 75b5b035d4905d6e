"""The AsyncAPI document of the consumer's channel, generated from the types of its frames."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any, Final

import msgspec

from leadline_client.channel import (
    CHANNEL_PATH,
    FROM_CONSUMER,
    FROM_COORDINATOR,
    Error,
    Frame,
    Hello,
    Ping,
    Pong,
    Start,
    Started,
    Stop,
    Stopped,
    Welcome,
    encode,
)
from leadline_client.errors import UnknownMember
from leadline_common.api.group_models import MEMBER_SECRET

_REF: Final = "#/components/schemas/{name}"
_CHANNEL: Final = "groupChannel"
_DESCRIPTION: Final = """\
A consumer asks any broker for the active coordinator (`POST /v1/consult`), and opens this WebSocket
there. It sends `hello`, and then only answers: `ping` with `pong`, `stop` with `stopped`, `start`
with `started`. Each frame is one text message, a JSON object whose `type` is the frame's name.
Unknown members of the object are ignored.

**Order.** Every frame after `welcome` has a coordinator epoch, a generation and (`stop`, `start`)
an attempt, compared in this order. A receiver that has seen higher numbers ignores the frame. `id`
rises by one over the `ping`, `stop` and `start` frames of a channel, from 1; 0 is the `hello`.

**Lease.** A consumer reads until `stop_limit_ms` have passed since it *sent* the answer to
`ping.acknowledged`, and then stops by itself. `welcome` acknowledges 0. The coordinator assigns the
consumer's partitions to others only after the longer `group.evict.limit.ms` has passed since it
*received* that answer. `acknowledged` does not rise while a `stop` is unanswered.

**Secret.** Member ids, instance ids and generations are public: anyone can list them. What proves
that a consumer is the member is the `secret` of its first `welcome`, which it keeps to itself. A
`hello` that names a member has the member's secret, and so has each commit and the request to
leave; without it they are refused (`WrongMemberSecret`), and change nothing. A static member that
gave an `instance_secret` is replaced only by a `hello` with the same one. One that gave none is
replaced only once it has certainly stopped; until then the coordinator answers `InstanceInUse`. The
replaced consumer gets `FencedInstance`, at once or when it connects again, and ends.

**End.** A consumer stops at once when the channel ends. It connects again, and claims the
partitions that it had in `hello.owned`. It reads again after the next `start`. If `welcome.member`
differs from `hello.member`, the consumer had been evicted and has lost all its partitions.
"""
_PARTS: Final = (("orders", (0, 3)),)
_TERM: Final[dict[str, Any]] = {"coordinator_epoch": 3, "generation": 7}
_EXAMPLES: Final[tuple[Frame, ...]] = (
    Hello(topics=("orders",), client_id="billing", assignor="sticky", protocol="cooperative"),
    Welcome(
        member="billing-6f1c0e5d2b7a4c11",
        **_TERM,
        ping_interval_ms=1000,
        stop_limit_ms=3000,
        secret=MEMBER_SECRET,
    ),
    Ping(id=4, **_TERM, acknowledged=3),
    Pong(id=4, **_TERM),
    Stop(id=5, **_TERM, attempt=1, partitions=_PARTS, reason="billing-0a1b has joined"),
    Stopped(id=5, **_TERM, attempt=1, partitions=_PARTS),
    Start(
        id=6,
        coordinator_epoch=3,
        generation=8,
        attempt=1,
        assignment=_PARTS,
        offsets=(("orders", 0, 42, 3), ("orders", 3, None, None)),
    ),
    Started(id=6, coordinator_epoch=3, generation=8, attempt=1),
    Error.of(UnknownMember("no answer came in time: join again")),
)
_ANSWERS: Final = {"ping": "pong", "stop": "stopped", "start": "started"}


def channel_document(version: str) -> dict[str, Any]:
    """Return the document, which depends on nothing but the code."""
    kinds = (*FROM_CONSUMER, *FROM_COORDINATOR)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Leadline consumer channel",
            "version": version,
            "description": _DESCRIPTION,
        },
        "defaultContentType": "application/json",
        "channels": {
            _CHANNEL: {
                "address": CHANNEL_PATH,
                "description": "One WebSocket for each consumer of a group.",
                "parameters": {"group": {"description": "The group's name"}},
                "messages": {
                    kind.type: {"$ref": f"#/components/messages/{kind.type}"} for kind in kinds
                },
            }
        },
        "operations": dict(_operation(kind) for kind in (Hello, *FROM_COORDINATOR)),
        "components": {
            "messages": {kind.type: _message(kind) for kind in kinds},
            "schemas": _schemas(kinds),
        },
    }


def _operation(kind: type[Frame]) -> tuple[str, dict[str, Any]]:
    """Return one operation from the coordinator's view: it receives `hello`, and sends the rest."""
    receives = kind is Hello
    answer = "welcome" if receives else _ANSWERS.get(kind.type)
    channel = {"$ref": f"#/channels/{_CHANNEL}"}
    operation: dict[str, Any] = {
        "action": "receive" if receives else "send",
        "channel": channel,
        "summary": _words(kind)[0],
        "messages": [_message_of(kind.type)],
    }
    if answer is not None:
        operation["reply"] = {"channel": channel, "messages": [_message_of(answer)]}
    return f"{'receive' if receives else 'send'}{kind.__name__}", operation


def _message_of(name: str) -> dict[str, str]:
    return {"$ref": f"#/channels/{_CHANNEL}/messages/{name}"}


def _message(kind: type[Frame]) -> dict[str, Any]:
    summary, description = _words(kind)
    examples = [example for example in _EXAMPLES if isinstance(example, kind)]
    return {
        "name": kind.type,
        "title": kind.__name__,
        "summary": summary,
        "description": description,
        "payload": {"$ref": _REF.format(name=kind.__name__)},
        "examples": [{"payload": msgspec.json.decode(encode(example))} for example in examples],
    }


def _words(kind: type[Frame]) -> tuple[str, str]:
    words = cleandoc(kind.__doc__ or "").replace("\n", " ")
    return words.partition(". ")[0].rstrip("."), words


def _schemas(kinds: tuple[type[Frame], ...]) -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    for kind in kinds:
        schema = schemas[kind.__name__]
        schema["properties"] = {"type": {"const": kind.type}, **schema["properties"]}
        schema["required"] = ["type", *schema.get("required", ())]
    return dict(sorted(schemas.items()))

"""Changing a cluster, as flows: topics, elections, and any other request of the controller's API.

A change goes with an `Idempotency-Key`. So the client may send it again after a lost response: the
controller makes it once, and answers each repetition as the first request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

from leadline_client.calls import Call
from leadline_client.core import ClientCore
from leadline_client.flows import Flow
from leadline_client.payloads import json_body, new_topic_json
from leadline_client.transport import JSON
from leadline_client.wire import NewTopic

ElectionType: TypeAlias = Literal["preferred", "unclean"]

_COMMAND_WAIT_S: Final = 30.0
_IDEMPOTENCY_KEY: Final = "idempotency-key"


def create_topic(
    core: ClientCore, topic: NewTopic, *, dry_run: bool = False
) -> Flow[dict[str, Any]]:
    """Create a topic; return the controller's response once all its brokers have applied it."""
    body = new_topic_json(topic, dry_run=dry_run)
    return (yield from administer(core, "POST", "/v1/topics", body, repeatable=dry_run, once=True))


def delete_topic(core: ClientCore, topic: str) -> Flow[dict[str, Any]]:
    """Delete a topic; return the controller's response, which may come before the deletion."""
    path = f"/v1/topics/{quote(topic, safe='')}"
    return (yield from administer(core, "DELETE", path, once=True))


def elect(
    core: ClientCore, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None = None
) -> Flow[dict[str, Any]]:
    """Elect leaders of `partitions`; None means every partition that needs an election."""
    rows = None
    if partitions is not None:
        rows = [{"topic": topic, "partition": number} for topic, number in partitions]
    wanted = {"type": kind, "partitions": rows}
    return (yield from administer(core, "POST", "/v1/elections", wanted, once=True))


def administer(
    core: ClientCore,
    method: str,
    path: str,
    document: object = None,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    repeatable: bool = False,
    once: bool = False,
) -> Flow[dict[str, Any]]:
    """Send a request of the controller's API to any broker, which forwards it.

    `document` is sent as JSON. `repeatable`: carrying it out twice does no harm, as for GET, or a
    dry run. `once`: any other change is sent with a new `Idempotency-Key`, and is repeated, too.

    Raises:
        RequestInDoubt: the controller ended between a change with a key and its answer.

    """
    body = b"" if document is None else json_body(document)
    sent = {"content-type": JSON} if body else {}
    again = repeatable or method == "GET"
    if once and not again:
        sent[_IDEMPOTENCY_KEY] = core.random_key()
        again = True
    call = Call(
        method, path, params or {}, {**sent, **(headers or {})}, body, again, _COMMAND_WAIT_S
    )
    return (yield from core.ask_any_broker(call))

"""Consumers that poll over HTTP: joins, and the requests of brokers for their polls."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp

from leadline_client.channel import Hello
from leadline_common.access.caller import require, require_matches
from leadline_common.access.rights import Action
from leadline_common.api.group_models import JoinBody, PollingMember
from leadline_common.api.groups import SYNC
from leadline_common.group_polls import MAX_SYNC_BYTES, SyncAnswer, SyncRequest
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_endpoint
from leadline_coordinator.domain.records import MemberSubscription
from leadline_coordinator.domain.subscriptions import PollingTerms, check_session_timeout
from leadline_coordinator.runtime.service import CoordinatorService


def add_sync_route(
    app: ServiceApp, coordinator: CoordinatorService, gate: Callable[[ASGIApp], ASGIApp]
) -> None:
    """Add the route that synchronizes a consumer; `gate` forwards what a standby gets."""

    async def sync(request: SyncRequest, group: str, member: str) -> SyncAnswer:
        members = coordinator.polled_members()
        require_topics(members.subscription(group, member, request.secret))
        return await members.sync(group, member, request)

    endpoint = bulk_endpoint(sync, SyncRequest, max_body_bytes=MAX_SYNC_BYTES)
    app.add_asgi_route(SYNC, gate(endpoint))


def join_group(coordinator: CoordinatorService, group: str, body: JoinBody) -> PollingMember:
    """Let a consumer join.

    Raises:
        Forbidden: it may not read what it asks for.
        LeadlineError: the group refuses it.

    """
    settings = coordinator.settings
    check_session_timeout(
        body.session_timeout_ms,
        settings.group_min_session_timeout_ms,
        settings.group_max_session_timeout_ms,
    )
    hello = Hello(
        topics=None if body.topics is None else tuple(body.topics),
        pattern=body.pattern,
        assignor=body.assignor,
        protocol=body.protocol,
        client_id=body.client_id,
        instance_id=body.instance_id,
        instance_secret=body.instance_secret,
    )
    require_topics(hello)
    terms = PollingTerms(body.session_timeout_ms, body.offset_reset)
    welcome = coordinator.polled_members().join(group, hello, terms)
    return PollingMember(
        group=group,
        consumer=welcome.member,
        secret=welcome.secret or "",
        session_timeout_ms=body.session_timeout_ms,
        generation=welcome.generation,
        coordinator_epoch=welcome.coordinator_epoch,
    )


def require_topics(asked: Hello | MemberSubscription) -> None:
    """Refuse a consumer that asks, or has asked, for topics which it may not read.

    Raises:
        Forbidden: there is one.

    """
    require(Action.READ, "topic", asked.topics or ())
    if asked.pattern is not None:
        require_matches(Action.READ, "topic", asked.pattern)

"""What-if: the very functions that the controller decides with, without any effect."""

from __future__ import annotations

from fastapi import APIRouter

from leadline_client.errors import InvalidRequest, PolicyViolation
from leadline_common.http import error_responses, read_only
from leadline_controller.api import models
from leadline_controller.domain.election import elect
from leadline_controller.domain.placement import assign_replicas

TAG = "what-if"


def what_if_routes() -> APIRouter:
    """Return the routes; every controller answers them, from the request alone."""
    router = APIRouter(prefix="/v1/what-if", tags=[TAG])

    @router.post("/election", summary="Who would lead?")
    @read_only
    async def what_if_election(body: models.WhatIfElection) -> models.WhatIfElected:
        """Decide an election from the request alone."""
        _check_members(body)
        election = elect(
            body.kind,
            tuple(body.assignment),
            tuple(body.isr),
            frozenset(body.live),
            leader=body.leader,
            unclean=body.unclean,
            shutting_down=frozenset(body.shutting_down),
            eligible=frozenset(body.eligible),
        )
        return models.WhatIfElected(
            leader=election.leader, isr=list(election.isr), reason=election.reason
        )

    @router.post(
        "/placement",
        summary="Where would replicas be placed?",
        responses=error_responses(PolicyViolation),
    )
    @read_only
    async def what_if_placement(body: models.WhatIfPlacement) -> models.WhatIfPlaced:
        """Place replicas from the request alone: Kafka's rack-aware round robin."""
        brokers = {broker.id: broker.rack for broker in body.brokers}
        if len(brokers) < len(body.brokers):
            raise InvalidRequest("body.brokers: an id is named twice")
        placed = assign_replicas(
            brokers,
            body.partitions,
            body.replication_factor,
            start_index=body.start_index,
            shift=body.shift,
            start_partition=body.start_partition,
        )
        return models.WhatIfPlaced(
            assignment={str(partition): list(replicas) for partition, replicas in placed.items()}
        )

    return router


def _check_members(body: models.WhatIfElection) -> None:
    """Refuse lists that no partition can have.

    Raises:
        InvalidRequest: a broker is named twice.

    """
    for name in ("assignment", "isr"):
        brokers = getattr(body, name)
        if len(set(brokers)) < len(brokers):
            raise InvalidRequest(f"body.{name}: a broker is named twice")

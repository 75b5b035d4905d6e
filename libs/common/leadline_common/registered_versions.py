"""Reads from ZooKeeper which releases and protocol versions are registered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from leadline_common import consumer_znodes, znodes
from leadline_common.consumer_znodes import CoordinatorRegistration
from leadline_common.versions import SpokenVersions, require_compatible
from leadline_common.zk.client import ZkClient
from leadline_common.zk.errors import NoNode
from leadline_common.znodes import BrokerRegistration, ControllerRegistration

_Registration = BrokerRegistration | ControllerRegistration | CoordinatorRegistration


async def registered_versions(zk: ZkClient) -> list[SpokenVersions]:
    """Return what live brokers, the active controller and the active coordinator speak.

    A registration that cannot be read is left out: whoever owns it reports that.

    Raises:
        ZkError: ZooKeeper could not be asked.

    """
    nodes: list[tuple[str, str, Callable[[bytes], _Registration]]] = [
        ("controller", znodes.CONTROLLER, znodes.decode_controller),
        ("coordinator", consumer_znodes.COORDINATOR, _decode_coordinator),
    ]
    brokers = await zk.get_children(znodes.BROKER_IDS)
    nodes += [("broker", f"{znodes.BROKER_IDS}/{name}", znodes.decode_broker) for name in brokers]
    found = []
    values = await zk.get_many([path for _, path, _ in nodes])
    for (kind, _, decode), value in zip(nodes, values, strict=True):
        with suppress(msgspec.MsgspecError):
            if value is not None:
                row = decode(value[0])
                found.append(row.spoken_by(f"{kind} {row.id}"))
    return found


async def require_compatible_with_registered(zk: ZkClient, own: SpokenVersions) -> None:
    """Check that a service speaks a protocol version in common with all other registered ones.

    Raises:
        IncompatibleRelease: it does not.
        ZkError: ZooKeeper could not be asked.

    """
    try:
        others = await registered_versions(zk)
    except NoNode:
        return  # No controller has prepared this cluster yet, so no service is registered.
    require_compatible(own, (other for other in others if other.service != own.service))


def _decode_coordinator(data: bytes) -> CoordinatorRegistration:
    return consumer_znodes.decode(data, CoordinatorRegistration)

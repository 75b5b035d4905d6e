"""The failed and dead brokers in ZooKeeper (KIP-46).

A controller writes `/admin/failed_brokers/{id}` when it first sees that a broker has failed, and
the node survives controller failovers. It is deleted when the broker returns, or when self-healing
has queued the broker's partitions. From then on `/admin/dead_brokers/{id}` says what was done about
the broker, until it returns. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from leadline_common import znodes
from leadline_common.znode_json import decode_value


class FailureState(StrEnum):
    """What is being done about a broker that has failed.

    `waiting`: nothing yet. `healing`: its partitions are queued, or are being recreated on other
    brokers. `healed`: no replica is left on it. `returned`: it is live again, and what was being
    moved when it returned is being finished.
    """

    WAITING = "waiting"
    HEALING = "healing"
    HEALED = "healed"
    RETURNED = "returned"


class FailedBroker(msgspec.Struct, frozen=True):
    """A failed broker; `failure_timestamp` is the time of detection in Unix ms.

    `incarnation` is the one that failed, -1 if no controller saw it live. `controller_epoch` is
    that of the controller that detected the failure. `partitions` is the number of partitions
    that then had a replica on the broker.
    """

    failure_timestamp: int
    incarnation: int = -1
    controller_epoch: int = -1
    partitions: int = 0
    extra: Mapping[str, Any] | None = None


class DeadBroker(msgspec.Struct, frozen=True):
    """A broker that has been down for longer than `failed.broker.interval.ms`.

    The first four members are those of its `FailedBroker`. At `queued_at` the last of its
    partitions was queued, in `chunks` tasks of this failure. At `healed_at` no replica was left on
    it. A `forgotten` broker is not expected back. Times are in Unix ms.
    """

    failure_timestamp: int
    incarnation: int = -1
    controller_epoch: int = -1
    partitions: int = 0
    queued_at: int = 0
    chunks: int = 0
    healed_at: int | None = None
    forgotten: bool = False
    extra: Mapping[str, Any] | None = None


def failed_broker_path(broker_id: int) -> str:
    """Return the node of a failed broker."""
    return f"{znodes.FAILED_BROKERS}/{broker_id}"


def dead_broker_path(broker_id: int) -> str:
    """Return the node of a dead broker."""
    return f"{znodes.DEAD_BROKERS}/{broker_id}"


def decode_failed_broker(data: bytes) -> FailedBroker:
    """Decode the node of a failed broker.

    Raises:
        msgspec.MsgspecError: the value is no such node.

    """
    return decode_value(data, FailedBroker)


def decode_dead_broker(data: bytes) -> DeadBroker:
    """Decode the node of a dead broker.

    Raises:
        msgspec.MsgspecError: the value is no such node.

    """
    return decode_value(data, DeadBroker)

"""The failed brokers in ZooKeeper, with the time of each failure (KIP-46).

A controller writes `/admin/failed_brokers/{id}` when it first sees that a broker has failed, and
the node survives controller failovers. It is deleted when the broker returns, or when self-healing
has queued the broker's partitions. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from leadline_common import znodes


class FailedBroker(msgspec.Struct, frozen=True):
    """A failed broker; `failure_timestamp` is the time of detection in Unix ms.

    `incarnation` is the one that failed, -1 if no controller saw it live. `controller_epoch` is
    that of the controller that detected the failure.
    """

    failure_timestamp: int
    incarnation: int = -1
    controller_epoch: int = -1
    extra: Mapping[str, Any] | None = None


def failed_broker_path(broker_id: int) -> str:
    """Return the node of a failed broker."""
    return f"{znodes.FAILED_BROKERS}/{broker_id}"


def decode_failed_broker(data: bytes) -> FailedBroker:
    """Decode the node of a failed broker.

    Raises:
        msgspec.MsgspecError: the value is no such node.

    """
    return znodes.decode_value(data, FailedBroker)

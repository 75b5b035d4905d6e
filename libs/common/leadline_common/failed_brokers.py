"""The brokers that are down, in ZooKeeper (KIP-46): since when, so that no controller forgets it.

`/admin/failed_brokers/{id}` is written when a controller first sees that a broker
has gone, and stays over changes of controllers. It goes when the broker returns, or
when the work that replaces it is queued. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from leadline_common import znodes


class FailedBroker(msgspec.Struct, frozen=True):
    """A broker that is down. `failure_timestamp` in Unix ms, of the first news of it.

    `incarnation` is the one that died, -1 where nobody saw it live;
    `controller_epoch` that of the controller that noticed.
    """

    failure_timestamp: int
    incarnation: int = -1
    controller_epoch: int = -1
    extra: Mapping[str, Any] | None = None


def failed_broker_path(broker_id: int) -> str:
    """Return the node that says that a broker is down."""
    return f"{znodes.FAILED_BROKERS}/{broker_id}"


def encode_failed_broker(failed: FailedBroker) -> bytes:
    """Encode the node of a broker that is down."""
    known = msgspec.structs.asdict(failed)
    return znodes.pack_value(known, known.pop("extra"))


def decode_failed_broker(data: bytes) -> FailedBroker:
    """Decode the node of a broker that is down.

    Raises:
        msgspec.MsgspecError: the value is none.

    """
    return znodes.decode_value(data, FailedBroker)

"""The kinds of requests to brokers, and who is told of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from leadline_client.wire import TopicPartition


class Command(StrEnum):
    """The kinds of requests to brokers, as metrics and logs name them."""

    GRANT = "full_grant"
    ROLES = "leader_and_isr"
    METADATA = "update_metadata"
    STOP = "stop_replica"
    HALT = "halt_replica"


class DispatchListener(msgspec.Struct, frozen=True):
    """What a request queue calls.

    `progressed` after each step, `invalidate` with partitions that the broker refused,
    `controller_changed` if the broker says that it knows a later controller, `sent` after each
    request with whether it was answered and the bytes of its body. `holds_metadata` returns
    whether metadata should wait because more changes are being written.
    """

    progressed: Callable[[], None]
    invalidate: Callable[[list[TopicPartition]], None]
    controller_changed: Callable[[], None]
    sent: Callable[[Command, bool, int], None]
    holds_metadata: Callable[[], bool]

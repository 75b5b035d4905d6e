"""The settings of a coordinator of consumer groups."""

from __future__ import annotations

from pydantic import ConfigDict, ValidationInfo, field_validator

from leadline_common.settings.fields import required, setting
from leadline_common.settings.service import ServiceSettings

_HOUR_MS = 3_600_000
_CLOCK_MARGIN_PERCENT = 2
"""Two clocks, each of which may go wrong by one in a hundred."""


class CoordinatorSettings(ServiceSettings):
    """What a coordinator is told."""

    # Defaults too: one limit that is set has to fit the others that are not.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    coordinator_id: int = required(
        "The number of this coordinator, unique among coordinators.", ge=0
    )
    group_ping_interval_ms: int = setting(
        1_000, "How often each consumer is pinged.", unit="ms", ge=10
    )
    group_stop_limit_ms: int = setting(
        3_000,
        "How long a consumer goes on without an acknowledged answer before it stops by itself.",
        unit="ms",
        ge=20,
    )
    group_evict_limit_ms: int = setting(
        4_000,
        "How long a consumer may leave a ping or a Stop unanswered before it is put out of its "
        "group. Longer than `group.stop.limit.ms` by a margin for clocks that differ in speed.",
        unit="ms",
        ge=30,
    )
    group_reconnect_grace_ms: int = setting(
        1_000,
        "How long a consumer whose connection has ended may take to come back before its "
        "partitions go to others. The end of a connection is taken to reach both sides within "
        "this time; where something between them may hide it, set it to `group.evict.limit.ms`.",
        unit="ms",
        ge=0,
    )
    group_static_grace_ms: int = setting(
        30_000,
        "How long the place of a consumer with an instance id is kept while it is away.",
        unit="ms",
        ge=0,
    )
    group_initial_rebalance_delay_ms: int = setting(
        200,
        "How long a group that was empty waits for more consumers before its first rebalance; "
        "again and again while more arrive, ten times at most.",
        unit="ms",
        ge=0,
    )
    group_max_size: int = setting(5_000, "Consumers that one group may have.", ge=1)
    max_rebalance_retries: int = setting(
        4,
        "How often consumers that do not answer a Start are sent it again before they are put out "
        "of the group.",
        ge=0,
    )
    rebalance_answer_timeout_ms: int = setting(
        2_000, "How long to wait for the answers to Start before the next try.", unit="ms", ge=10
    )
    offsets_commit_interval_ms: int = setting(
        10,
        "The least time between two writes of one group's committed offsets to ZooKeeper; what "
        "comes in meanwhile is written together.",
        unit="ms",
        ge=0,
    )
    offsets_retention_ms: int = setting(
        7 * 24 * _HOUR_MS,
        "How long the committed offsets of a group without consumers are kept; -1 for ever.",
        unit="ms",
        ge=-1,
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "How often to look for groups past `offsets.retention.ms`.", unit="ms", ge=100
    )
    group_lag_interval_ms: int = setting(
        10_000, "How often the lag in the metrics is measured; 0 never.", unit="ms", ge=0
    )
    group_topics_interval_ms: int = setting(
        3_000,
        "How often topics are compared with ZooKeeper, whatever watches have said.",
        unit="ms",
        ge=100,
    )

    @field_validator("group_evict_limit_ms")
    @classmethod
    def _limits_in_order(cls, evict_ms: int, others: ValidationInfo) -> int:
        """Keep the coordinator from giving away what a consumer may still be reading (R16)."""
        ping_ms = others.data.get("group_ping_interval_ms", 0)
        stop_ms = others.data.get("group_stop_limit_ms", ping_ms + 1)
        if not ping_ms < stop_ms < evict_ms:
            raise ValueError(
                "group.ping.interval.ms < group.stop.limit.ms < group.evict.limit.ms must hold"
            )
        if evict_ms * 100 < stop_ms * (100 + _CLOCK_MARGIN_PERCENT):
            raise ValueError(
                "group.evict.limit.ms must exceed group.stop.limit.ms by at least "
                f"{_CLOCK_MARGIN_PERCENT} %: a consumer's clock may be slow, the coordinator's fast"
            )
        return evict_ms

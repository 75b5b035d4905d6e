"""The settings of a group coordinator."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, ValidationInfo, field_validator

from leadline_common.identity import Kind
from leadline_common.settings.fields import ServiceSettings, required, setting

_HOUR_MS = 3_600_000
_CLOCK_MARGIN_PERCENT = 2
"""Each of two clocks may be off by one percent."""


class CoordinatorSettings(ServiceSettings):
    """The settings of a group coordinator."""

    kind: ClassVar[Kind | None] = "coordinator"

    # Defaults are validated too, because a limit that is set must fit the defaults of the others.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    coordinator_id: int = required("The id of this coordinator, unique among coordinators.", ge=0)
    group_ping_interval_ms: int = setting(1_000, "How often each consumer is pinged.", ge=10)
    group_stop_limit_ms: int = setting(
        3_000,
        "How long a consumer continues without an acknowledged response before it stops itself.",
        ge=20,
    )
    group_evict_limit_ms: int = setting(
        4_000,
        "How long a consumer may leave a ping or a Stop unanswered before it is evicted from its "
        "group. Longer than `group.stop.limit.ms` by a margin for clocks that differ in speed.",
        ge=30,
    )
    group_reconnect_grace_ms: int = setting(
        1_000,
        "How long a consumer may take to reconnect before its partitions are assigned to others. "
        "Both sides are assumed to detect the end of a connection within this time; if a proxy "
        "between them may hide it, set it to `group.evict.limit.ms`.",
        ge=0,
    )
    group_static_grace_ms: int = setting(
        30_000,
        "How long a disconnected consumer with an instance id remains a member.",
        ge=0,
    )
    group_initial_rebalance_delay_ms: int = setting(
        200,
        "How long an empty group waits for more consumers before its first rebalance. It waits "
        "again while more join, at most ten times.",
        ge=0,
    )
    group_min_session_timeout_ms: int = setting(
        6_000,
        "The shortest session timeout that a consumer which polls over HTTP may ask for.",
        ge=100,
    )
    group_max_session_timeout_ms: int = setting(
        300_000,
        "The longest session timeout that a consumer which polls over HTTP may ask for. So long "
        "nobody reads the partitions of one that fails.",
        ge=100,
    )
    group_max_size: int = setting(5_000, "Most consumers in one group.", ge=1)
    group_max_count: int = setting(10_000, "Most consumer groups, with or without members.", ge=1)
    group_max_channels: int = setting(
        20_000, "Most channels of consumers that one coordinator keeps open.", ge=1
    )
    group_address_max_channels: int = setting(
        5_000, "Most channels of consumers from one network address.", ge=1
    )
    group_max_frames_per_s: int = setting(
        100,
        "Most frames that a consumer sends in a second. It only answers, so it needs few; a "
        "channel with more is closed.",
        ge=10,
    )
    group_hello_timeout_ms: int = setting(
        10_000, "How long a new channel may stay without its first frame.", ge=100
    )
    max_rebalance_retries: int = setting(
        4,
        "How often a Start is repeated to consumers that do not answer it before they are evicted.",
        ge=0,
    )
    rebalance_answer_timeout_ms: int = setting(
        2_000, "How long to wait for the answers to Start before the next try.", ge=10
    )
    offsets_commit_interval_ms: int = setting(
        10,
        "The minimum time between two writes of one group's committed offsets to ZooKeeper; "
        "commits that arrive meanwhile are written together.",
        ge=0,
    )
    offsets_commit_timeout_ms: int = setting(
        5_000,
        "How long a commit beyond the known end of a log waits for the leader to tell its end. "
        "After that it is refused, and may be retried.",
        ge=1,
    )
    offsets_retention_ms: int = setting(
        7 * 24 * _HOUR_MS,
        "How long the committed offsets of an empty group are kept; -1 keeps them forever.",
        ge=-1,
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "How often to check for groups past `offsets.retention.ms`.", ge=100
    )
    group_lag_interval_ms: int = setting(
        10_000, "How often to measure the lag for the metrics; 0 disables it.", ge=0
    )
    metrics_groups_max: int = setting(
        1_000,
        "Most groups with metrics of their own, and most pairs of a group and a topic. Further "
        "ones count in the totals.",
        ge=0,
        le=100_000,
    )
    group_topics_interval_ms: int = setting(
        3_000,
        "How often to compare topics with ZooKeeper, independently of watches.",
        ge=100,
    )

    @field_validator("group_evict_limit_ms")
    @classmethod
    def _limits_in_order(cls, evict_ms: int, others: ValidationInfo) -> int:
        """Ensure that a consumer stops before its partitions are assigned to others (R16)."""
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

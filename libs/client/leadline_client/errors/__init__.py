"""The one error tree of Leadline: code, HTTP status, outcome, retriable.

    LeadlineError
    ├── Refused                  definite: nothing was or will be appended or changed
    │   ├── InvalidRequest 40050, PolicyViolation 40002, CorruptBatch 40051, UnsupportedFormat 41550
    │   ├── Unauthorized 40101, Forbidden 40301
    │   ├── UnknownTopic 40403, UnknownPartition 40402, NotFound 404
    │   ├── PartitionRemovalPending 40990
    │   ├── TopicDeletionPending 40950, FencedLeaderEpoch 40951, UnknownLeaderEpoch 40952,
    │   │   StaleControllerEpoch 40953, StaleIncarnation 40954, TopicIdMismatch 40955,
    │   │   OutOfOrderSequence 40956, ProducerFenced 40957, FetchSessionUnknown 40958
    │   ├── UnknownStaged 40452, PublishMismatch 40959, PublishOutOfOrder 40962, StagingFull 50358
    │   ├── InvalidSubscription 40052, UnknownGroup 40450, UnknownMember 40451,
    │   │   StaleGeneration 40970, RebalanceInProgress 40971, GroupNotEmpty 40972,
    │   │   FencedInstance 40973, GroupFull 40974, PartitionNotOwned 40975,
    │   │   ConsumerRebalanceFailed 40976
    │   ├── ReassignmentInProgress 40980, TaskIsOver 40981, StalePlan 40982
    │   ├── IdempotencyKeyReused 42250
    │   ├── StaleVersion 41250, BodyTooLarge 41350, OffsetOutOfRange 41650
    │   ├── NotLeader 42150, NotCoordinator 42151
    │   └── NoController 50350, LeaderNotAvailable 50351, NotEnoughReplicas 50352,
    │       BrokerFenced 50353, OffsetNotAvailable 50354, StorageFailed 50355,
    │       Unreachable 50356 (raised by clients only), CoordinatorNotAvailable 50360,
    │       AllKnownBrokersNotAvailable 50361 (raised by clients only), InternalError 50050
    └── OutcomeUnknown           the write may or may not have happened
        ├── RequestTimedOut 50450, LeadershipLost 50451, NotEnoughReplicasAfterAppend 50452
        ├── RequestUnderWay 40960, RequestInDoubt 40961
        └── StoreOutcomeUnknown 50453, ConnectionLost 50454 (raised by clients only)

A code has five digits: the HTTP status and two more, which are at least 50 in codes
of Leadline's own. `outcome` tells a writer what a failure means (rule R15): a refusal
came before any effect; an unknown outcome must be reported neither as success nor as
failure.
"""

from __future__ import annotations

from leadline_client.errors.administration import (
    HistoryUnavailable,
    IdempotencyKeyReused,
    NoController,
    PartitionRemovalPending,
    ReassignmentInProgress,
    StalePlan,
    StaleVersion,
    TaskIsOver,
    TopicDeletionPending,
)
from leadline_client.errors.decoding import (
    ERRORS_BY_CODE,
    error_from_body,
)
from leadline_client.errors.groups import (
    AllKnownBrokersNotAvailable,
    ConsumerRebalanceFailed,
    CoordinatorNotAvailable,
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    InvalidSubscription,
    NotCoordinator,
    PartitionNotOwned,
    RebalanceInProgress,
    StaleGeneration,
    UnknownGroup,
    UnknownMember,
)
from leadline_client.errors.publishing import (
    PublishMismatch,
    PublishOutOfOrder,
    StagingFull,
    UnknownStaged,
)
from leadline_client.errors.replication import (
    BrokerFenced,
    CorruptBatch,
    FencedLeaderEpoch,
    FetchSessionUnknown,
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    StaleControllerEpoch,
    StaleIncarnation,
    StorageFailed,
    TopicIdMismatch,
    UnknownLeaderEpoch,
)
from leadline_client.errors.requests import (
    BodyTooLarge,
    Forbidden,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PolicyViolation,
    Unauthorized,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
    UnsupportedFormat,
)
from leadline_client.errors.tree import (
    LeaderHint,
    LeadlineError,
    Outcome,
    OutcomeUnknown,
    Refused,
)
from leadline_client.errors.unknown import (
    ConnectionLost,
    LeadershipLost,
    NotEnoughReplicasAfterAppend,
    RequestInDoubt,
    RequestTimedOut,
    RequestUnderWay,
    StoreOutcomeUnknown,
)

__all__ = [
    "ERRORS_BY_CODE",
    "AllKnownBrokersNotAvailable",
    "BodyTooLarge",
    "BrokerFenced",
    "ConnectionLost",
    "ConsumerRebalanceFailed",
    "CoordinatorNotAvailable",
    "CorruptBatch",
    "FencedInstance",
    "FencedLeaderEpoch",
    "FetchSessionUnknown",
    "Forbidden",
    "GroupFull",
    "GroupNotEmpty",
    "HistoryUnavailable",
    "IdempotencyKeyReused",
    "InternalError",
    "InvalidRequest",
    "InvalidSubscription",
    "LeaderHint",
    "LeaderNotAvailable",
    "LeadershipLost",
    "LeadlineError",
    "MethodNotAllowed",
    "NoController",
    "NotCoordinator",
    "NotEnoughReplicas",
    "NotEnoughReplicasAfterAppend",
    "NotFound",
    "NotLeader",
    "OffsetNotAvailable",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "Outcome",
    "OutcomeUnknown",
    "PartitionNotOwned",
    "PartitionRemovalPending",
    "PolicyViolation",
    "ProducerFenced",
    "PublishMismatch",
    "PublishOutOfOrder",
    "ReassignmentInProgress",
    "RebalanceInProgress",
    "Refused",
    "RequestInDoubt",
    "RequestTimedOut",
    "RequestUnderWay",
    "StagingFull",
    "StaleControllerEpoch",
    "StaleGeneration",
    "StaleIncarnation",
    "StalePlan",
    "StaleVersion",
    "StorageFailed",
    "StoreOutcomeUnknown",
    "TaskIsOver",
    "TopicDeletionPending",
    "TopicIdMismatch",
    "Unauthorized",
    "UnknownGroup",
    "UnknownLeaderEpoch",
    "UnknownMember",
    "UnknownPartition",
    "UnknownStaged",
    "UnknownTopic",
    "Unreachable",
    "UnsupportedFormat",
    "error_from_body",
]

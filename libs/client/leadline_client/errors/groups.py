"""Refusals about consumer groups and their coordinator."""

from __future__ import annotations

from leadline_client.errors.tree import Refused


class InvalidSubscription(Refused):
    """What a consumer asks of its group makes no sense, or does not fit the group's other members.

    It names topics or one pattern of RE2's syntax, an assignor, and a protocol; all
    members of a group have the same assignor and protocol.
    """

    code = 40052


class UnknownGroup(Refused):
    """There is no such consumer group, or nothing is known of it."""

    code = 40450


class UnknownMember(Refused):
    """The consumer is not, or no longer, a member of the group: join again without a member id."""

    code = 40451


class StaleGeneration(Refused):
    """The generation or the coordinator epoch is not the member's present one.

    Wait for the next Start, and commit again what is still owned after it.
    """

    code = 40970


class RebalanceInProgress(Refused):
    """The group is being rebalanced; what was asked for has to wait until it is settled.

    So does a consumer with another assignor or protocol than members have that are away.
    """

    code = 40971
    retriable = True


class GroupNotEmpty(Refused):
    """The group has members; what was asked for can only be done to a group without any."""

    code = 40972


class FencedInstance(Refused):
    """Another consumer with this instance id has taken this member's place."""

    code = 40973


class GroupFull(Refused):
    """The group has as many members as group.max.size allows."""

    code = 40974


class PartitionNotOwned(Refused):
    """The partition is not the member's: it was taken away, or never given."""

    code = 40975


class ConsumerRebalanceFailed(Refused):
    """The group could not be rebalanced within max.rebalance.retries; who did not answer is out.

    A consumer that is told so may join again.
    """

    code = 40976
    retriable = True


class NotCoordinator(Refused):
    """This process is not the active coordinator: consult a broker and ask the one it names."""

    code = 42151
    retriable = True


class CoordinatorNotAvailable(Refused):
    """No coordinator is active, or it cannot be reached, or it is only just taking over."""

    code = 50360
    retriable = True


class AllKnownBrokersNotAvailable(Refused):
    """None of the brokers that the client knows answers (seed 3; raised by clients only)."""

    code = 50361
    retriable = True

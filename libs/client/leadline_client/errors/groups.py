"""Refusals about consumer groups and their coordinator."""

from __future__ import annotations

from leadline_client.errors.tree import Refused


class InvalidSubscription(Refused):
    """The subscription is invalid, or does not match those of the group's other members.

    It names topics or one pattern in RE2's syntax, an assignor, and a protocol; all
    members of a group have the same assignor and protocol.
    """

    code = 40052


class WrongMemberSecret(Refused):
    """The secret of the member, or of its instance, is missing or wrong.

    The coordinator gives a consumer its secret when it joins, and nobody else. A consumer that does
    not have it joins without a member id. Whoever restarts a static member passes the instance
    secret that the member joined with, or waits until the member is removed.
    """

    code = 40360


class UnknownGroup(Refused):
    """The consumer group does not exist, as far as this server knows."""

    code = 40450


class UnknownMember(Refused):
    """The consumer is not a member of the group: rejoin without a member id."""

    code = 40451


class StaleGeneration(Refused):
    """The generation or the coordinator epoch is not the member's current one.

    Wait for the next Start, and commit again for the partitions that are still owned.
    """

    code = 40970


class RebalanceInProgress(Refused):
    """The group is being rebalanced, or former members may still be consuming: retry later.

    A consumer whose assignor or protocol differs from that of disconnected members must wait
    until these have left.
    """

    code = 40971
    retriable = True


class GroupNotEmpty(Refused):
    """The group has members; the request needs a group without any."""

    code = 40972


class FencedInstance(Refused):
    """Another consumer with this instance id has replaced this member."""

    code = 40973


class GroupFull(Refused):
    """The group has as many members as group.max.size allows."""

    code = 40974


class PartitionNotOwned(Refused):
    """The member does not own the partition: it was revoked or never assigned."""

    code = 40975


class ConsumerRebalanceFailed(Refused):
    """The rebalance failed after max.rebalance.retries; members that did not answer were evicted.

    An evicted consumer may rejoin.
    """

    code = 40976
    retriable = True


class InstanceInUse(Refused):
    """The member with this instance id is connected, or may still be consuming: retry later.

    It gave no instance secret, so another consumer can take its place only once it has stopped.
    """

    code = 40977
    retriable = True


class TooManyGroups(Refused):
    """There are as many groups as group.max.count allows: delete those that nobody uses."""

    code = 40978


class PollSuperseded(Refused):
    """The consumer has polled again before this poll was answered: poll one at a time.

    The records of the later poll are the same; this answer has none.
    """

    code = 40979


class NotCoordinator(Refused):
    """This process is not the active coordinator; any broker names the active one."""

    code = 42151
    retriable = True


class CoordinatorNotAvailable(Refused):
    """No coordinator is active, or it cannot be reached, or it is still loading its state."""

    code = 50360
    retriable = True


class GroupUnreadable(Refused):
    """The ACL of the group's nodes in ZooKeeper keeps the coordinator from reading them.

    An operator has to mend it. Other groups are served.
    """

    code = 50372
    retriable = True


class TooManyChannels(Refused):
    """There are as many channels as group.max.channels or group.address.max.channels allow."""

    code = 50362
    retriable = True


class AllKnownBrokersNotAvailable(Refused):
    """None of the brokers that the client knows answers (raised by clients only)."""

    code = 50361
    retriable = True

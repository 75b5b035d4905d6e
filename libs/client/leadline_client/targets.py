"""The receivers of requests: a partition's leader, the group coordinator, or any broker.

A target knows its address and how to find it, learns from failures, and gives the
error to raise when there is no address. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from leadline_client.bootstrap import base_url
from leadline_client.cache import MetadataCache
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    LeadlineError,
    OutcomeUnknown,
    TopicIdMismatch,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
)
from leadline_client.wire import Metadata

_STARTS: Final = 1 << 16
_AVOID_S: Final = 30.0
"""For how long a replica that failed serves no reads of a client."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The request to any broker that finds an address."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)


class Target(Protocol):
    """The receiver of a request."""

    def lookup(self) -> Lookup | None:
        """Return the request that finds the address; None: no lookup is needed."""

    def apply_lookup(self, document: Mapping[str, Any] | None) -> None:
        """Use the response to the lookup; None: no broker answered."""

    def address(self) -> str | None:
        """Return a base URL, or None if none is known."""

    def params(self) -> Mapping[str, str]:
        """Return query parameters that state what the sender assumes; none by default."""
        return {}

    def on_error(self, error: LeadlineError) -> bool:
        """Learn from a failure; return whether a better address is known now."""

    def unavailable(self) -> LeadlineError:
        """Return the error that says why there is no address."""


class AnyBroker(Target):
    """Any broker of the cluster: the known ones and the bootstrap addresses, in turn.

    It begins at a random one, so that clients with the same addresses spread over the brokers
    (Replication V3, discussion 6); `random` returns numbers in [0, 1).

    Admin requests go here too: a broker forwards them to the active controller, whose address a
    client may be unable to reach.
    """

    def __init__(
        self, bootstrap: Sequence[str], cache: MetadataCache, random: Callable[[], float]
    ) -> None:
        self._bootstrap = tuple(map(base_url, bootstrap))
        self._cache = cache
        self._turn = int(random() * _STARTS)

    def lookup(self) -> Lookup | None:
        """Return None: brokers are found with every other lookup."""
        return None

    def apply_lookup(self, document: Mapping[str, Any] | None) -> None:
        """Do nothing: there is no lookup."""

    def addresses(self) -> tuple[str, ...]:
        """Return every known address, beginning with the current one."""
        known = tuple(dict.fromkeys((*self._cache.broker_urls, *self._bootstrap)))
        first = self._turn % len(known) if known else 0
        return known[first:] + known[:first]

    def address(self) -> str | None:
        """Return the current address."""
        return next(iter(self.addresses()), None)

    def on_error(self, error: LeadlineError) -> bool:  # noqa: ARG002 - any failure means: the next
        """Move on to the next broker, which may be no better."""
        self.rotate()
        return False

    def rotate(self) -> None:
        """Use another broker the next time."""
        self._turn += 1

    def unavailable(self, last: LeadlineError | None = None) -> LeadlineError:
        """Say that no broker is known, or that none can be reached, and why not the last one."""
        known = ", ".join(self.addresses())
        if not known:
            return AllKnownBrokersNotAvailable("no broker is known: give a bootstrap address")
        reason = f": {last.message}" if last is not None else ""
        return AllKnownBrokersNotAvailable(f"no broker can be reached at {known}{reason}")


class PartitionLeader(Target):
    """The leader of one partition; with `topic_id`, of the topic with this id only."""

    def __init__(
        self, cache: MetadataCache, topic: str, partition: int, topic_id: str | None = None
    ) -> None:
        self._cache = cache
        self._topic = topic
        self._partition = partition
        self._topic_id = topic_id
        self._answered = True

    def lookup(self) -> Lookup:
        """Return the request for the metadata of the topic."""
        return Lookup("GET", "/v1/metadata", {"topics": self._topic})

    def apply_lookup(self, document: Mapping[str, Any] | None) -> None:
        """Merge the metadata into the cache; raises TopicIdMismatch."""
        self._answered = document is not None
        if document is not None:
            self._cache.update(Metadata.from_json(document), (self._topic,))
            self._check_topic_id()

    def _check_topic_id(self) -> None:
        topic = self._cache.topic(self._topic)
        if topic is not None and self._topic_id not in (None, topic.topic_id):
            raise TopicIdMismatch(f"topic {self._topic!r} was deleted and recreated")

    def address(self) -> str | None:
        """Return the address of the newest known leader."""
        return self._cache.leader_url(self._topic, self._partition)

    def params(self) -> Mapping[str, str]:
        """State the leader epoch, so that a former leader refuses the request (rule R15)."""
        epoch = self._cache.leader_epoch(self._topic, self._partition)
        return {} if epoch is None else {"leader_epoch": str(epoch)}

    def on_error(self, error: LeadlineError) -> bool:
        """Follow the hint of a refusal, if it names a newer leader."""
        if error.leader is None:
            return False
        return self._cache.apply_hint(self._topic, self._partition, error.leader)

    def unavailable(self) -> LeadlineError:
        """Say what is missing: brokers, the topic, the partition, or its leader."""
        if not self._answered:
            return AllKnownBrokersNotAvailable("none of the known brokers answers")
        topic = self._cache.topic(self._topic)
        if topic is None:
            return UnknownTopic(f"topic {self._topic!r} does not exist")
        if self._cache.partition(self._topic, self._partition) is None:
            return UnknownPartition(
                f"topic {self._topic!r} has {len(topic.partitions)} partitions, "
                f"there is no partition {self._partition}"
            )
        return LeaderNotAvailable(f"{self._topic}-{self._partition} has no leader at present")


class PartitionReplica(PartitionLeader):
    """An in-sync replica of one partition, for reads: one in `rack` if there is one, or else any.

    Kept from read to read: it stays with the replica that `random` (in [0, 1)) chose, and avoids
    one that failed or lacked the offset for a while. Without another candidate it is the leader
    (Leader election in ZooKeeper, Leader of a replicated log; KIP-392).
    """

    def __init__(
        self,
        cache: MetadataCache,
        topic: str,
        partition: int,
        topic_id: str | None = None,
        *,
        rack: str | None,
        clock: Callable[[], float],
        random: float,
    ) -> None:
        super().__init__(cache, topic, partition, topic_id)
        self._rack = rack
        self._clock = clock
        self._random = random
        self._avoided_until_s: dict[str, float] = {}

    def address(self) -> str | None:
        """Return the address of the chosen replica, or of the leader if there is none to choose."""
        now_s = self._clock()
        candidates = [
            broker
            for broker in self._cache.in_sync_brokers(self._topic, self._partition)
            if self._avoided_until_s.get(broker.url, now_s) <= now_s
        ]
        near = [broker for broker in candidates if self._rack and broker.rack == self._rack]
        chosen = near or candidates
        return chosen[int(self._random * len(chosen))].url if chosen else super().address()

    def params(self) -> Mapping[str, str]:
        """Ask a follower to serve the request too."""
        return {**super().params(), "replica": "any"}

    def on_error(self, error: LeadlineError) -> bool:
        """Avoid the replica that failed; return whether another one can be asked at once.

        After a broken connection the metadata is looked up first: the broker may be gone.
        """
        failed = self.address()
        if super().on_error(error):
            return True
        if failed is None:
            return False
        self._avoided_until_s[failed] = self._clock() + _AVOID_S
        return self.address() != failed and not isinstance(error, Unreachable | OutcomeUnknown)


class GroupCoordinator(Target):
    """The active coordinator of consumer groups, found as in the Consumer Coordinator design."""

    def __init__(self) -> None:
        self._url: str | None = None
        self._epoch = -1
        self._answered = True

    def lookup(self) -> Lookup:
        """Return the request that asks a broker for the coordinator."""
        return Lookup("POST", "/v1/consult")

    def apply_lookup(self, document: Mapping[str, Any] | None) -> None:
        """Use the coordinator that a broker names, unless a newer one is known."""
        self._answered = document is not None
        named = (document or {}).get("coordinator")
        if named is not None and named["epoch"] >= self._epoch:
            self._url, self._epoch = named["url"].rstrip("/"), named["epoch"]

    def address(self) -> str | None:
        """Return the address of the coordinator, or None if it is not known."""
        return self._url

    def on_error(self, error: LeadlineError) -> bool:  # noqa: ARG002 - any failure means: a lookup
        """Forget the address: another coordinator may be active now."""
        self._url = None
        return False

    def unavailable(self) -> LeadlineError:
        """Say whether brokers or coordinators are missing."""
        if not self._answered:
            return AllKnownBrokersNotAvailable("none of the known brokers answers")
        return CoordinatorNotAvailable("no coordinator of consumer groups is active")

"""The receivers of requests: a partition's leader, the group coordinator, or any broker.

A target knows its address and how to find it, learns from failures, and gives the
error to raise when there is no address. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from leadline_client.cache import MetadataCache
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    LeadlineError,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import Metadata


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


def base_url(address: str) -> str:
    """Return the base URL of an address; `host:port`, as for Kafka's clients, means HTTP."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


class AnyBroker(Target):
    """Any broker of the cluster: the known ones and the bootstrap addresses, in turn.

    Admin requests go here too: a broker forwards them to the active controller,
    whose address a client may be unable to reach.
    """

    def __init__(self, bootstrap: Sequence[str], cache: MetadataCache) -> None:
        self._bootstrap = tuple(map(base_url, bootstrap))
        self._cache = cache
        self._turn = 0

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

    def unavailable(self) -> LeadlineError:
        """Say that no broker is known, or that none can be reached."""
        known = ", ".join(self.addresses())
        if not known:
            return AllKnownBrokersNotAvailable("no broker is known: give a bootstrap address")
        return AllKnownBrokersNotAvailable(f"no broker can be reached at {known}")


class PartitionLeader(Target):
    """The leader of one partition."""

    def __init__(self, cache: MetadataCache, topic: str, partition: int) -> None:
        self._cache = cache
        self._topic = topic
        self._partition = partition
        self._answered = True

    def lookup(self) -> Lookup:
        """Return the request for the metadata of the topic."""
        return Lookup("GET", "/v1/metadata", {"topics": self._topic})

    def apply_lookup(self, document: Mapping[str, Any] | None) -> None:
        """Merge the metadata into the cache."""
        self._answered = document is not None
        if document is not None:
            self._cache.update(Metadata.from_json(document), (self._topic,))

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

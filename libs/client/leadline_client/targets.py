"""Whom a request is for: a partition's leader, the coordinator, or any broker.

A target knows where to send, learns from failures, and can name what is missing
when there is nowhere to send. Pure: no IO.
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
class Inquiry:
    """What any broker is asked to find an address out."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)


class Target(Protocol):
    """Where a request goes, as far as is known."""

    def inquiry(self) -> Inquiry | None:
        """Return what to ask of any broker; None: there is nothing to find out."""

    def found(self, document: Mapping[str, Any] | None) -> None:
        """Take in the answer to the inquiry; None: no broker answered."""

    def address(self) -> str | None:
        """Return a base URL, or None where none is known."""

    def params(self) -> Mapping[str, str]:
        """Return query parameters that say what the sender believes."""

    def learn(self, error: LeadlineError) -> bool:
        """Take note of a failure; return whether a better address is known now."""

    def missing(self) -> LeadlineError:
        """Return the error that says why there is no address."""


def base_url(address: str) -> str:
    """Return an address as the beginning of URLs; `host:port`, as Kafka has it, means HTTP."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


class Brokers:
    """The brokers of the cluster, in turn: those known, and the bootstrap addresses.

    Admin commands go to them too: a broker passes them on to the active
    controller, whose address a client may not be able to reach.
    """

    def __init__(self, bootstrap: Sequence[str], cache: MetadataCache) -> None:
        self._bootstrap = tuple(map(base_url, bootstrap))
        self._cache = cache
        self._turn = 0

    def inquiry(self) -> Inquiry | None:
        """Return nothing: whom one would ask is whom one is looking for."""
        return None

    def found(self, document: Mapping[str, Any] | None) -> None:
        """Have nothing to find."""

    def addresses(self) -> tuple[str, ...]:
        """Return every address worth a try, the one whose turn it is first."""
        known = tuple(dict.fromkeys((*self._cache.broker_urls, *self._bootstrap)))
        first = self._turn % len(known) if known else 0
        return known[first:] + known[:first]

    def address(self) -> str | None:
        """Return the address whose turn it is."""
        return next(iter(self.addresses()), None)

    def params(self) -> Mapping[str, str]:
        """Return nothing: any broker will do."""
        return {}

    def learn(self, error: LeadlineError) -> bool:  # noqa: ARG002 - any failure means: the next
        """Move on to the next broker; there is no telling whether it is better."""
        self.pass_on()
        return False

    def pass_on(self) -> None:
        """Have another broker asked the next time."""
        self._turn += 1

    def missing(self) -> LeadlineError:
        """Say that there is nobody to ask, or nobody who can be reached."""
        known = ", ".join(self.addresses())
        if not known:
            return AllKnownBrokersNotAvailable("no broker is known: give a bootstrap address")
        return AllKnownBrokersNotAvailable(f"no broker can be reached at {known}")


class Leader:
    """The leader of one partition."""

    def __init__(self, cache: MetadataCache, topic: str, partition: int) -> None:
        self._cache = cache
        self._topic = topic
        self._partition = partition
        self._answered = True

    def inquiry(self) -> Inquiry:
        """Ask for the metadata of the topic alone."""
        return Inquiry("GET", "/v1/metadata", {"topics": self._topic})

    def found(self, document: Mapping[str, Any] | None) -> None:
        """Merge the metadata into what is known."""
        self._answered = document is not None
        if document is not None:
            self._cache.update(Metadata.from_json(document), (self._topic,))

    def address(self) -> str | None:
        """Return where the newest known leader is."""
        return self._cache.leader_url(self._topic, self._partition)

    def params(self) -> Mapping[str, str]:
        """State the leader epoch, so that a leader that was succeeded refuses (rule R15)."""
        epoch = self._cache.leader_epoch(self._topic, self._partition)
        return {} if epoch is None else {"leader_epoch": str(epoch)}

    def learn(self, error: LeadlineError) -> bool:
        """Follow the hint of a refusal, if it names a newer leader."""
        if error.leader is None:
            return False
        return self._cache.learn(self._topic, self._partition, error.leader)

    def missing(self) -> LeadlineError:
        """Say what is not there: brokers, the topic, the partition, or its leader."""
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


class Coordinator:
    """The active coordinator of consumer groups, as brokers name it (seed 3)."""

    def __init__(self) -> None:
        self._url: str | None = None
        self._epoch = -1
        self._answered = True

    def inquiry(self) -> Inquiry:
        """Consult."""
        return Inquiry("POST", "/v1/consult")

    def found(self, document: Mapping[str, Any] | None) -> None:
        """Take the coordinator that a broker names, unless it was succeeded by one known."""
        self._answered = document is not None
        named = (document or {}).get("coordinator")
        if named is not None and named["epoch"] >= self._epoch:
            self._url, self._epoch = named["url"].rstrip("/"), named["epoch"]

    def address(self) -> str | None:
        """Return where the coordinator is, as far as is known."""
        return self._url

    def params(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    def learn(self, error: LeadlineError) -> bool:  # noqa: ARG002 - any failure means: consult
        """Forget the address: another one may be in office by now."""
        self._url = None
        return False

    def missing(self) -> LeadlineError:
        """Say whether brokers or coordinators are what is missing."""
        if not self._answered:
            return AllKnownBrokersNotAvailable("none of the known brokers answers")
        return CoordinatorNotAvailable("no coordinator of consumer groups is active")

"""Whom a request is for: a partition's leader, or any broker.

A target knows where to send, learns from failures, and can name what is missing
when there is nowhere to send. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from leadline_client.cache import MetadataCache
from leadline_client.errors import (
    LeaderNotAvailable,
    LeadlineError,
    UnknownPartition,
    UnknownTopic,
)


class Target(Protocol):
    """Where a request goes, as far as is known."""

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics whose metadata a refresh should ask for; None is all."""

    def address(self) -> str | None:
        """Return a base URL, or None where none is known."""

    def params(self) -> Mapping[str, str]:
        """Return query parameters that say what the sender believes."""

    def learn(self, error: LeadlineError) -> bool:
        """Take note of a failure; return whether a better address is known now."""

    def missing(self) -> LeadlineError:
        """Return the error that says why there is no address."""


class Brokers:
    """The brokers of the cluster, in turn: those known, and the bootstrap addresses.

    Admin commands go to them too: a broker passes them on to the active
    controller, whose address a client may not be able to reach.
    """

    def __init__(self, bootstrap: Sequence[str], cache: MetadataCache) -> None:
        self._bootstrap = tuple(url.rstrip("/") for url in bootstrap)
        self._cache = cache
        self._turn = 0

    topics: tuple[str, ...] | None = ()

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
        self._turn += 1
        return False

    def missing(self) -> LeadlineError:
        """Say that there is nobody to ask."""
        return LeaderNotAvailable("no broker is known: give at least one bootstrap address")


class Leader:
    """The leader of one partition."""

    def __init__(self, cache: MetadataCache, topic: str, partition: int) -> None:
        self._cache = cache
        self._topic = topic
        self._partition = partition

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic alone."""
        return (self._topic,)

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
        """Say what is not there: the topic, the partition, or its leader."""
        topic = self._cache.topic(self._topic)
        if topic is None:
            return UnknownTopic(f"topic {self._topic!r} does not exist")
        if self._cache.partition(self._topic, self._partition) is None:
            return UnknownPartition(
                f"topic {self._topic!r} has {len(topic.partitions)} partitions, "
                f"there is no partition {self._partition}"
            )
        return LeaderNotAvailable(f"{self._topic}-{self._partition} has no leader at present")

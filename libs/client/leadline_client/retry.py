"""When a client tries again, how long it waits, and what it says in the end (rule R15).

Pure: the clock's value and the random number are arguments.

- A refusal is definite, so a retriable one is tried again whatever the request.
- After an unknown outcome only a repeatable request is tried again: a read, or
  a batch that an idempotent producer numbered.
- Once an attempt had an unknown outcome, a later refusal does not make the whole
  definite: what is raised at the end is then the unknown outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from leadline_client.backoff import backoff_pause
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    LeadlineError,
    OutcomeUnknown,
    UnknownTopic,
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient a client is; all times in seconds.

    `timeout_s` bounds one call with all its retries, `request_timeout_s` one
    attempt, `metadata_timeout_s` one look at the metadata. A topic that is not
    known is waited for no longer than `unknown_topic_s`: metadata may lag, but
    a misspelt name should fail soon. Nor is a cluster of which no broker has ever
    answered waited for longer than `first_contact_s`, once none can be reached.
    """

    timeout_s: float = 30.0
    request_timeout_s: float = 10.0
    metadata_timeout_s: float = 3.0
    unknown_topic_s: float = 2.0
    first_contact_s: float = math.inf
    first_pause_s: float = 0.02
    longest_pause_s: float = 1.0

    def pause_s(self, failures: int, random: float) -> float:
        """Return the wait after so many failures in a row; `random` is in [0, 1)."""
        return backoff_pause(
            failures, first=self.first_pause_s, longest=self.longest_pause_s, random=random
        )


class Attempts:
    """The failures of one call so far, and whether another attempt is allowed.

    `reads`: it changes nothing, so that no attempt of it leaves anything in doubt.
    """

    def __init__(
        self, policy: RetryPolicy, *, started_s: float, timeout_s: float, reads: bool = False
    ) -> None:
        self._policy = policy
        self._reads = reads
        self._started_s = started_s
        self._deadline_s = started_s + timeout_s
        self._failures = 0
        self._unknown: OutcomeUnknown | None = None

    def left_s(self, now_s: float) -> float:
        """Return how much of the call's time is left, in seconds."""
        return self._deadline_s - now_s

    def pause_after(
        self,
        error: LeadlineError,
        *,
        repeatable: bool,
        now_s: float,
        chance: float,
        met: bool = True,
    ) -> float:
        """Return how long to wait before the next attempt, in seconds.

        `met`: whether any broker has ever answered.

        Raises:
            LeadlineError: no further attempt: what the caller is to be told.

        """
        if isinstance(error, OutcomeUnknown) and not self._reads:
            self._unknown = error
        if not self._may_try_again(error, repeatable=repeatable):
            raise self._verdict(error)
        self._failures += 1
        pause_s = self._policy.pause_s(self._failures, chance)
        if now_s + pause_s >= self._give_up_at(error, met=met):
            raise self._verdict(error)
        return pause_s

    @staticmethod
    def _may_try_again(error: LeadlineError, *, repeatable: bool) -> bool:
        if isinstance(error, OutcomeUnknown):
            return repeatable
        return error.retriable

    def _give_up_at(self, error: LeadlineError, *, met: bool) -> float:
        if isinstance(error, UnknownTopic):
            return min(self._deadline_s, self._started_s + self._policy.unknown_topic_s)
        if isinstance(error, AllKnownBrokersNotAvailable) and not met:
            return min(self._deadline_s, self._started_s + self._policy.first_contact_s)
        return self._deadline_s

    def _verdict(self, error: LeadlineError) -> LeadlineError:
        if self._unknown is None or self._unknown is error:
            return error
        self._unknown.__cause__ = error
        return self._unknown

"""When a client retries, how long it waits, and which error it raises at last (rule R15).

Pure: the time and the random number are arguments.

- A refusal is definite, so the client retries any request after a retriable one.
- After an unknown outcome the client retries only a repeatable request: a read, a batch of
  an idempotent producer, or a change with an Idempotency-Key.
- If a server asks to wait, the client waits so long, and a little more so that not all clients
  come back at once. It does not wait in vain: the call fails if its time does not suffice.
- If the outcome of an attempt was unknown, a refusal of a later attempt does not make
  the whole call definite: the client then raises the unknown outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from leadline_client.backoff import backoff_pause
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    LeadlineError,
    OutcomeUnknown,
    RequestInDoubt,
    UnknownTopic,
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a client retries; all times in seconds.

    `timeout_s` limits one call with all its retries, `request_timeout_s` one
    attempt, `metadata_timeout_s` one metadata request. A call for an unknown topic
    fails after `unknown_topic_s`: metadata may lag, but a misspelt name should fail
    soon. If no broker has ever answered and none can be reached, a call fails after
    `first_contact_s`. Pauses between attempts grow from `first_pause_s` to
    `longest_pause_s`.
    """

    timeout_s: float = 30.0
    request_timeout_s: float = 10.0
    metadata_timeout_s: float = 3.0
    unknown_topic_s: float = 2.0
    first_contact_s: float = math.inf
    first_pause_s: float = 0.02
    longest_pause_s: float = 1.0

    def pause_s(self, failures: int, random: float, asked_s: float = 0.0) -> float:
        """Return the wait after so many failures in a row; `random` is in [0, 1).

        `asked_s`: how long the server asks to wait. Not all clients should come back right then.
        """
        return asked_s + backoff_pause(
            failures, first=self.first_pause_s, longest=self.longest_pause_s, random=random
        )


class Attempts:
    """Counts the failures of one call, and tells whether another attempt is allowed.

    `reads`: the call changes nothing, so no attempt has an unknown outcome.
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
        random: float,
        answered: bool = True,
    ) -> float:
        """Return how long to wait before the next attempt, in seconds.

        `random` is in [0, 1). `answered`: whether any broker has ever answered.

        Raises:
            LeadlineError: there is no further attempt; this is the error of the call.

        """
        if isinstance(error, OutcomeUnknown) and not self._reads:
            self._unknown = error
        unknown = isinstance(error, OutcomeUnknown)
        stays_unknown = isinstance(error, RequestInDoubt)
        if stays_unknown or not (repeatable if unknown else error.retriable):
            raise self.final(error)
        self._failures += 1
        pause_s = self._policy.pause_s(self._failures, random, error.retry_after_s)
        if now_s + pause_s >= self._deadline_for(error, answered=answered):
            raise self.final(error)
        return pause_s

    def _deadline_for(self, error: LeadlineError, *, answered: bool) -> float:
        if isinstance(error, UnknownTopic):
            return min(self._deadline_s, self._started_s + self._policy.unknown_topic_s)
        if isinstance(error, AllKnownBrokersNotAvailable) and not answered:
            return min(self._deadline_s, self._started_s + self._policy.first_contact_s)
        return self._deadline_s

    def final(self, error: LeadlineError) -> LeadlineError:
        """Return the error of a call that ends with `error`: an unknown outcome stays unknown."""
        if self._unknown is None or self._unknown is error:
            return error
        self._unknown.__cause__ = error
        return self._unknown

"""One call, sent until it is answered: whom to ask, whom next, and when to give up.

Flows without any IO of their own, as everything that `ClientCore` returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leadline_client.errors import LeadlineError, Unreachable, error_from_body
from leadline_client.flows import Flow, exchange, pause
from leadline_client.payloads import maybe_json
from leadline_client.retry import Attempts, RetryPolicy
from leadline_client.targets import Brokers, Target
from leadline_client.transport import Request, Response


@dataclass(frozen=True, slots=True)
class Call:
    """What to ask, before it is known whom.

    `repeatable`: doing it twice does no harm. `server_wait_s`: how long the
    server may hold the answer back by its own word.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    repeatable: bool = False
    server_wait_s: float = 0.0


class Caller:
    """Sends calls for one client, and knows whether its cluster has ever answered."""

    def __init__(
        self,
        brokers: Brokers,
        policy: RetryPolicy,
        *,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._brokers = brokers
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._met = False

    def call(self, target: Target, call: Call, timeout_s: float | None = None) -> Flow[Response]:
        """Send `call` to `target` until it is answered, refused for good, or out of time.

        Raises:
            Refused: definite; nothing was or will be changed.
            OutcomeUnknown: the call may or may not have taken effect.

        """
        started_s = self._clock()
        limit_s = self._policy.timeout_s if timeout_s is None else timeout_s
        reads = call.method == "GET"
        attempts = Attempts(self._policy, started_s=started_s, timeout_s=limit_s, reads=reads)
        while True:
            try:
                return (yield from self._attempt(target, call, attempts))
            except LeadlineError as error:
                pause_s = attempts.pause_after(
                    error,
                    repeatable=call.repeatable,
                    now_s=self._clock(),
                    chance=self._chance(),
                    met=self._met,
                )
                if target.learn(error):
                    continue
            yield from pause(pause_s)
            yield from self.refresh(target)

    def refresh(self, target: Target) -> Flow[None]:
        """Ask brokers for the whereabouts of `target` until one answers; at most once round."""
        inquiry = target.inquiry()
        if inquiry is None:
            return
        limit_s = self._policy.metadata_timeout_s
        for address in self._brokers.addresses():
            url = address + inquiry.path
            request = Request(inquiry.method, url, inquiry.params, timeout_s=limit_s)
            try:
                response = yield from self._exchange(request)
            except LeadlineError as error:
                self._brokers.learn(error)
                continue
            if response.status == 200:
                target.found(json.loads(response.body))
                if target.address() is None:
                    self._brokers.pass_on()  # this one may be cut off, and know nothing new
                return
        target.found(None)

    def _attempt(self, target: Target, call: Call, attempts: Attempts) -> Flow[Response]:
        if target is self._brokers:
            return (yield from self._ask_any(call, attempts))
        address = target.address()
        if address is None:
            yield from self.refresh(target)
            address = target.address()
        if address is None:
            raise target.missing()
        limit_s = self._policy.request_timeout_s
        return (yield from self._ask(address, call, target.params(), limit_s, attempts))

    def _ask_any(self, call: Call, attempts: Attempts) -> Flow[Response]:
        """Ask the broker whose turn it is, or the next that can be reached."""
        policy = self._policy
        limit_s = policy.request_timeout_s if call.server_wait_s else policy.metadata_timeout_s
        last: Unreachable | None = None
        for address in self._brokers.addresses():
            try:
                return (yield from self._ask(address, call, {}, limit_s, attempts))
            except Unreachable as failure:
                self._brokers.pass_on()
                last = failure
        raise self._brokers.missing() from last

    def _ask(
        self,
        address: str,
        call: Call,
        params: Mapping[str, str],
        limit_s: float,
        attempts: Attempts,
    ) -> Flow[Response]:
        patience_s = min(limit_s, max(attempts.left_s(self._clock()), 0.1))
        response = yield from self._exchange(
            Request(
                call.method,
                address + call.path,
                {**call.params, **params},
                call.headers,
                call.body,
                timeout_s=patience_s + call.server_wait_s,
            )
        )
        if response.status < 400:
            return response
        raise error_from_body(response.status, maybe_json(response.body))

    def _exchange(self, request: Request) -> Flow[Response]:
        response = yield from exchange(request)
        self._met = True
        return response

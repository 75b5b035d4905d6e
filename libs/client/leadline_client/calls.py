"""Calls: requests that are sent to a target until it answers, refuses, or the time is up.

All functions return flows and do no IO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from leadline_client.cache import MetadataCache
from leadline_client.errors import (
    ClusterChanged,
    ConnectionLost,
    Forbidden,
    InvalidRequest,
    LeadlineError,
    NotFound,
    QuotaExceeded,
    ServerNotTrusted,
    TokenNotSent,
    Unauthorized,
    Unreachable,
)
from leadline_client.flows import Flow, delay, exchange
from leadline_client.payloads import decoded, document_of, error_of, foreign_answer
from leadline_client.retry import Attempts, RetryPolicy
from leadline_client.targets import AnyBroker, Target
from leadline_client.transport import CLUSTER_ID_HEADER, Request, Response

_DENIED: Final = (Unauthorized, Forbidden, TokenNotSent, ServerNotTrusted)
"""Why a broker that can be reached tells this client nothing: another attempt would not help."""
_UNSENT: Final = (*_DENIED, InvalidRequest)
"""Why a lookup is not sent to any address; InvalidRequest: the client was closed."""
_DEFINITE: Final = (ClusterChanged, *_DENIED)
_WITHHELD: Final = (*_DEFINITE, QuotaExceeded)
"""Why a broker that can be reached does not answer a lookup."""

_LEAST_S: Final = 0.1
"""The least time that a request gets, at the end of its call."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose receiver is not known yet.

    `repeatable`: carrying it out twice does no harm. `server_wait_s`: how long the
    request allows the server to wait before it answers.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    repeatable: bool = False
    server_wait_s: float = 0.0


@dataclass(slots=True)
class Caller:
    """Sends the calls of one client; `random` returns numbers in [0, 1).

    `answered`: whether any broker has ever answered. Each request names the cluster, so that
    another cluster at the same addresses refuses it. An address of another cluster counts as
    unreachable; only if no address belongs to the client's cluster, the call ends.
    """

    any_broker: AnyBroker
    cache: MetadataCache
    policy: RetryPolicy
    clock: Callable[[], float]
    random: Callable[[], float]
    answered: bool = False

    def call(self, target: Target, call: Call, timeout_s: float | None = None) -> Flow[Response]:
        """Send `call` to `target` until it answers, refuses for good, or the time is up.

        Raises:
            Refused: nothing was or will be changed.
            ClusterChanged: another cluster is at the addresses.
            OutcomeUnknown: the call may or may not have taken effect.

        """
        started_s = self.clock()
        limit_s = self.policy.timeout_s if timeout_s is None else timeout_s
        reads = call.method == "GET"
        attempts = Attempts(self.policy, started_s=started_s, timeout_s=limit_s, reads=reads)
        while True:
            try:
                return (yield from self._attempt(target, call, attempts))
            except LeadlineError as error:
                pause_s = attempts.pause_after(
                    error,
                    repeatable=call.repeatable,
                    now_s=self.clock(),
                    random=self.random(),
                    answered=self.answered,
                )
                throttled = isinstance(error, QuotaExceeded)
                if not throttled and target.on_error(error):
                    continue
            yield from delay(pause_s)
            if not throttled:  # Otherwise the right broker was asked, and is asked again.
                yield from self._find_again(target, attempts)

    def _find_again(self, target: Target, attempts: Attempts) -> Flow[None]:
        definite: LeadlineError | None = None
        failed = target.address()
        try:
            yield from self.refresh(target, attempts.left_s(self.clock()))
        except QuotaExceeded:
            pass  # The next attempt waits if it has to look the target up, too.
        except (*_DEFINITE, InvalidRequest) as error:
            definite = error
        if target is not self.any_broker and target.address() == failed:
            # The broker that named it may be cut off, and never hear of its successor.
            self.any_broker.rotate()
        if definite is not None:
            raise attempts.final(definite)

    def refresh(self, target: Target, left_s: float | None = None) -> Flow[None]:
        """Look `target` up at one broker after the other, until one answers.

        `left_s`: how much time is left for it; by default that of a whole call.

        Raises:
            ClusterChanged: only brokers of another cluster answer.
            Unauthorized, Forbidden, TokenNotSent, ServerNotTrusted, QuotaExceeded: no broker
                answered, and this is why one of them did not.
            InvalidRequest: the client was closed, or all addresses are of other services.

        """
        withheld: LeadlineError | None = None
        own_answers = False
        not_brokers = 0
        lookup = target.lookup()
        if lookup is None:
            return
        limit_s = self.policy.metadata_timeout_s
        give_up_s = self.clock() + (self.policy.timeout_s if left_s is None else left_s)
        addresses = self.any_broker.addresses()
        for address in addresses:
            url = address + lookup.path
            total_s = max(give_up_s - self.clock(), _LEAST_S)
            request = Request(lookup.method, url, lookup.params, timeout_s=limit_s, total_s=total_s)
            try:
                response = yield from self._exchange(request)
            except LeadlineError as error:
                self.any_broker.on_error(error)
                withheld = error if isinstance(error, _UNSENT) else withheld
                continue
            not_brokers += _is_of_no_broker(response)
            own_answers |= response.headers.get(CLUSTER_ID_HEADER) == self.cache.cluster_id
            try:
                if self._apply_lookup(target, response):
                    return
            except _WITHHELD as error:
                self.any_broker.on_error(error)
                withheld = error
        if withheld is not None and not (own_answers and isinstance(withheld, ClusterChanged)):
            raise withheld
        if addresses and not_brokers == len(addresses):
            listed = ", ".join(addresses)
            raise InvalidRequest(f"there is no broker at {listed}: give the address of one")
        target.apply_lookup(None)

    def _apply_lookup(self, target: Target, response: Response) -> bool:
        """Use the response to a lookup; return whether it is an answer. Raises `_WITHHELD`."""
        refusal = _refusal(response)
        if isinstance(refusal, _WITHHELD):
            raise refusal
        if response.status != 200:
            return False
        try:
            decoded(target.apply_lookup, document_of(response))
        except ConnectionLost:
            return False
        if target.address() is None:
            self.any_broker.rotate()  # This one may be cut off and have old metadata.
        return True

    def _attempt(self, target: Target, call: Call, attempts: Attempts) -> Flow[Response]:
        if target is self.any_broker:
            return (yield from self._ask_any(call, attempts))
        address = target.address()
        if address is None:
            yield from self.refresh(target, attempts.left_s(self.clock()))
            address = target.address()
        if address is None:
            raise target.unavailable()
        limit_s = self.policy.request_timeout_s
        try:
            return (yield from self._ask(address, call, target.params(), limit_s, attempts))
        except ClusterChanged as changed:  # Look the target up: it may have another address.
            raise Unreachable(f"{address} is of another cluster") from changed

    def _ask_any(self, call: Call, attempts: Attempts) -> Flow[Response]:
        """Ask the current broker, or the next one that can be reached."""
        policy = self.policy
        limit_s = policy.request_timeout_s if call.server_wait_s else policy.metadata_timeout_s
        last: Unreachable | ClusterChanged | None = None
        for address in self.any_broker.addresses():
            try:
                return (yield from self._ask(address, call, {}, limit_s, attempts))
            except (Unreachable, ClusterChanged) as failure:
                self.any_broker.rotate()
                last = last if isinstance(last, ClusterChanged) else failure
        if isinstance(last, ClusterChanged | ServerNotTrusted):
            raise last
        raise self.any_broker.unavailable(last) from last

    def _ask(
        self,
        address: str,
        call: Call,
        params: Mapping[str, str],
        limit_s: float,
        attempts: Attempts,
    ) -> Flow[Response]:
        left_s = max(attempts.left_s(self.clock()), _LEAST_S)
        response = yield from self._exchange(
            Request(
                call.method,
                address + call.path,
                {**call.params, **params},
                call.headers,
                call.body,
                timeout_s=min(limit_s, left_s) + call.server_wait_s,
                total_s=left_s + call.server_wait_s,
            )
        )
        refusal = _refusal(response)
        if refusal is not None:
            raise refusal
        return response

    def _exchange(self, request: Request) -> Flow[Response]:
        if self.cache.cluster_id is not None:
            headers = {**request.headers, CLUSTER_ID_HEADER: self.cache.cluster_id}
            request = replace(request, headers=headers)
        response = yield from exchange(request)
        self.answered = True
        self.cache.identify(response.headers.get(CLUSTER_ID_HEADER))
        return response


def _is_of_no_broker(response: Response) -> bool:
    """Tell whether a service of Leadline answered that lacks a route which all brokers have."""
    return CLUSTER_ID_HEADER in response.headers and isinstance(_refusal(response), NotFound)


def _refusal(response: Response) -> LeadlineError | None:
    if response.status >= 400:
        return error_of(response)
    # Leadline redirects nobody: this is a proxy, which may have replaced the answer to a request
    # that was carried out.
    return foreign_answer(f"HTTP status {response.status}") if response.status >= 300 else None

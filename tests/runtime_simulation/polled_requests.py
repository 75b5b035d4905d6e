"""HTTP requests of a program without a client library: each goes to any broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tests.runtime_simulation.member_processes import GROUP
from tests.runtime_simulation.web import NoAnswer, NotReached, Web, WebRequest

NO_ANSWER: Final = 0
_CONNECT_S: Final = 0.3
_HEADERS: Final = (("content-type", "application/json"),)


class _Error(msgspec.Struct):
    """What an `ErrorBody` says: which error it is, and about the outcome."""

    error_code: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a broker has answered; without an answer the status is `NO_ANSWER`."""

    broker: str
    status: int
    body: bytes = b""
    sent: bool = True

    @property
    def code(self) -> int | None:
        """The code of the error that it is, if any."""
        if self.status < 400:
            return None
        return msgspec.json.decode(self.body, type=_Error).error_code

    @property
    def is_unknown(self) -> bool:
        """Whether the request may have taken effect, although it is not said to have."""
        if self.status == NO_ANSWER:
            return self.sent
        return self.status >= 400 and msgspec.json.decode(self.body, type=_Error).outcome != (
            "refused"
        )


@dataclass(frozen=True, slots=True)
class GroupRequests:
    """Sends requests about the group to brokers, which are chosen by chance each time."""

    web: Web
    brokers: list[str]

    async def post(self, path: str, body: dict[str, Any], timeout_s: float = 1.0) -> Reply:
        """Send a request once; return what became of it."""
        broker = self.web.world.random.choice(self.brokers)
        target, content = f"/v1/groups/{GROUP}/{path}", msgspec.json.encode(body)
        request = WebRequest("POST", target, _HEADERS, content)
        try:
            answer = await self.web.exchange(
                broker, request, connect_s=_CONNECT_S, timeout_s=timeout_s
            )
        except NotReached:
            return Reply(broker, NO_ANSWER, sent=False)
        except NoAnswer:
            return Reply(broker, NO_ANSWER)
        return Reply(broker, answer.status, answer.body)

    async def pause(self) -> None:
        """Wait a little before another attempt."""
        await asyncio.sleep(self.web.world.between(0.02, 0.2))

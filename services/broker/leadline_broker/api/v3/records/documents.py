"""JSON objects that follow each other in a stream, found as their bytes arrive."""

from __future__ import annotations

import re
from typing import Final

_BRACKETS: Final = re.compile(rb'[{}\[\]"]')
_IN_STRING: Final = re.compile(rb'["\\]')
_BLANKS: Final = re.compile(rb"[ \t\r\n]*")


class ObjectSplitter:
    """Splits bytes into objects; each byte is looked at once, however the bytes arrive.

    An object is only found, not checked. It may have `max_bytes`. `problem` says why what follows
    the objects that were found cannot be told apart; None while it can.
    """

    def __init__(self, max_bytes: int) -> None:
        self.problem: str | None = None
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._seen = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that end in `data`, in order."""
        found: list[bytes] = []
        self._buffer += data
        while self.problem is None and self._find_end():
            found.append(bytes(self._buffer[: self._seen]))
            del self._buffer[: self._seen]
            self._seen = 0
        return found

    def end(self) -> None:
        """Set `problem` if the stream has ended within an object."""
        self._begin()
        if self.problem is None and self._buffer:
            self.problem = "the body ends within a record"

    def _find_end(self) -> bool:
        """Look for the end of the first object; return whether it is at `_seen`."""
        self._begin()
        ended = False
        while self.problem is None and not ended and self._seen < len(self._buffer):
            ended = self._step()
        if self._seen > self._max_bytes:
            self.problem = f"a record is larger than {self._max_bytes} bytes"
        return ended and self.problem is None

    def _begin(self) -> None:
        if self._seen == 0:
            blanks = _BLANKS.match(self._buffer)
            del self._buffer[: blanks.end() if blanks else 0]
            if self._buffer and not self._buffer.startswith(b"{"):
                self.problem = "a record is a JSON object"

    def _step(self) -> bool:
        """Go on to the next mark; return whether the object ends there."""
        if self._escaped:
            self._escaped = False
            self._seen += 1
            return False
        pattern = _IN_STRING if self._in_string else _BRACKETS
        match = pattern.search(self._buffer, self._seen)
        if match is None:
            self._seen = len(self._buffer)
            return False
        self._seen = match.end()
        self._pass(match[0])
        return self._depth == 0 and not self._in_string

    def _pass(self, mark: bytes) -> None:
        if mark == b"\\":
            self._escaped = True
        elif mark == b'"':
            self._in_string = not self._in_string
        else:
            self._depth += 1 if mark in (b"{", b"[") else -1

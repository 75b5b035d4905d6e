"""Mutations of the bytes of an HTTP request."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

FRAGMENTS = (
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b"\xff",
    b"%00",
    b"%ff",
    b"%ed%a0%80",
    b"\\ud800",
    b"9" * 5_000,
    b"[" * 5_000,
    b"a" * 10_000,
    b"Content-Length: 5\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"Host: evil.example\r\n",
    b" HTTP/1.1\r\n",
    b"X: y\r\n" * 200,
    b"1\r\nx\r\n0\r\n\r\n",
)
Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def truncated(choice: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Return a beginning."""
    return data[: choice.randrange(len(data))]


def with_part_of_body(choice: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Return the whole head, and a part of the body that it announces."""
    head, blank, body = data.partition(b"\r\n\r\n")
    return head + blank + body[: choice.randrange(len(body))] if body else data


def flipped(choice: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Change up to eight bytes."""
    changed = bytearray(data)
    for _ in range(choice.randint(1, 8)):
        changed[choice.randrange(len(changed))] = choice.randrange(256)
    return bytes(changed)


def without_slice(choice: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Leave out up to twenty bytes."""
    at = choice.randrange(len(data))
    return data[:at] + data[at + choice.randint(1, 20) :]


def repeated(choice: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Repeat a slice."""
    at = choice.randrange(len(data))
    return data[:at] + data[at : at + choice.randint(1, 60)] * choice.randint(2, 9) + data[at:]


def with_fragment(choice: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Insert a fragment, at the end of a line more often than elsewhere."""
    ends = [at + 2 for at in range(len(data)) if data.startswith(b"\r\n", at)]
    at = choice.choice(ends) if ends and choice.random() < 0.6 else choice.randrange(len(data))
    return data[:at] + choice.choice(FRAGMENTS) + data[at:]


def spliced(choice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Join the beginning of a request and the end of another."""
    other = choice.choice(others)
    return data[: choice.randrange(len(data))] + other[choice.randrange(len(other)) :]


def pipelined(choice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Send another request on the same connection."""
    keep_alive = data.replace(b"Connection: close\r\n", b"")
    return keep_alive * choice.randint(1, 20) + choice.choice(others)


MUTATIONS: tuple[Mutation, ...] = (
    truncated,
    with_part_of_body,
    flipped,
    without_slice,
    repeated,
    with_fragment,
    spliced,
    pipelined,
)


def mutated(choice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return the bytes after one to three mutations; at least one byte is left."""
    for _ in range(choice.randint(1, 3)):
        data = choice.choice(MUTATIONS)(choice, data, others) or b"G"
    return data

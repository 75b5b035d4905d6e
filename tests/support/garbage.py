"""What operators and broken tools may write into ZooKeeper."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from leadline_common.zk.errors import NodeExists, NoNode
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession

GARBAGE: Final[dict[str, bytes]] = {
    "empty": b"",
    "invalid UTF-8": b'{"version": 1, "partitions": {"0": [1]}, "x": "\xff\xfe"}',
    "no JSON": b"not json at all",
    "a list": b"[1, 2, 3, {}]",
    "a string": b'"text"',
    "null": b"null",
    "wrong types": b'{"version": 1, "partitions": [], "leader": "1", "isr": 5, "configs": [1]}',
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep unknown field": b'{"x":' + b"[" * 900 + b"]" * 900 + b"}",
    "5,000 digits": b'{"leader": ' + b"9" * 5_000 + b"}",
    "only digits": b"9" * 5_000,
    "lone surrogate": b'{"name": "\\ud800", "\\udc00": 1}',
    "huge numbers": b'{"partitions": {"0": [1]}, "leader": 1, "isr": [1], "leader_epoch": '
    + str(2**70).encode()
    + b', "controller_epoch": 1, "configs": {"retention.ms": 1180591620717411303424}}',
    "negative": b'{"partitions": {"-1": [-5]}, "leader": -7, "isr": [-1], "leader_epoch": -3, '
    b'"controller_epoch": -9, "id": -1, "target": [-1], "replicas": [-1]}',
    "NaN": b'{"leader": NaN, "timestamp": 1e999}',
    "large": b'{"text": "' + b"x" * 900_000 + b'"}',
    "unknown version": b'{"version": 99, "partitions": "new", "leader": {}, "configs": null}',
}
"""Values by what is wrong with them."""


async def write(session: ZkSession, path: str, data: bytes) -> None:
    """Create a node or replace its value; the controller may delete it or its parent."""
    while True:
        await session.ensure_path(path.rpartition("/")[0])
        with suppress(NoNode):
            try:
                await session.create(path, data)
            except NodeExists:
                await session.set(path, data, ANY_VERSION)
            return

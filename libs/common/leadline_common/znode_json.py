"""Decoding JSON and numbers that anybody may have written into ZooKeeper. Pure.

Whatever the bytes are, decoding them raises `msgspec.MsgspecError` and nothing else, and what it
returns can be encoded again. So a caller has one error to catch, and no value fails later, in a
decision about other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

MAX_DEPTH: Final = 32
"""Levels of nesting in a value. Deeper ones could not be encoded again in every context."""
MAX_NUMBER: Final = 2**31 - 1
"""The largest id, partition and version."""
MAX_EPOCH: Final = 2**30
"""The largest epoch; it leaves room for as many elections again within 32 bits."""
MAX_NODE_PARTITION: Final = 1_000_000
"""The largest partition number that is taken from a node."""

NO_DATA: Final = b"the ACL of this node does not let this session read it"
"""Stands for the data of a node that may not be read; it is no value of any node."""
VALUE_VERSION: Final = 1
"""The `version` of every value."""

_MAX_DIGITS: Final = 10
_CONTAINERS: Final = (dict, list)
MAX_TIME: Final = 2**63 - 1
"""The latest time, in Unix ms."""
_Value = TypeVar("_Value")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def decode_json(data: bytes, kind: type[_Value] | Any = Any) -> Any:
    """Decode a value, of the type `kind`.

    Raises:
        msgspec.MsgspecError: it is no JSON, of another type, or nested too deep.

    """

    def decode(data: bytes) -> Any:
        value = msgspec.json.decode(data)
        check_plain(value)
        return value if kind is Any else msgspec.convert(value, kind, str_keys=True)

    return _decoded(data, decode)


def decode_typed(
    data: bytes, decoder: msgspec.json.Decoder[_Value], untyped: Callable[[_Value], Any]
) -> _Value:
    """Decode a value by its type alone, in a third of the time of `decode_json`.

    `untyped` returns those of its parts whose types allow anything: only they may be nested.

    Raises:
        msgspec.MsgspecError: it is no JSON, of another type, or nested too deep.

    """

    def decode(data: bytes) -> _Value:
        value = decoder.decode(data)
        check_plain(untyped(value))
        return value

    return _decoded(data, decode)


def _decoded(data: bytes, decode: Callable[[bytes], _Value]) -> _Value:
    """Return what a function decodes, which may raise nothing but `msgspec.MsgspecError` here."""
    if data == NO_DATA:
        raise msgspec.ValidationError(NO_DATA.decode())
    try:
        return decode(data)
    except msgspec.MsgspecError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as problem:
        raise msgspec.ValidationError(f"{type(problem).__name__}: {problem}") from problem


def check_plain(value: Any) -> None:
    """Check that a decoded value can be encoded again.

    It goes level by level, because a call for each value would take twice as long.

    Raises:
        msgspec.ValidationError: it is nested too deep.

    """
    containers = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(MAX_DEPTH):
        if not containers:
            return
        containers = [
            item
            for container in containers
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, _CONTAINERS)
        ]
    if containers:
        raise msgspec.ValidationError(f"nested deeper than {MAX_DEPTH} levels")


def check_range(what: str, numbers: Iterable[int], least: int, most: int = MAX_NUMBER) -> None:
    """Check that numbers are in a range, both ends included.

    Raises:
        msgspec.ValidationError: one is not.

    """
    for number in numbers:
        if not least <= number <= most:
            raise msgspec.ValidationError(f"{what} {number} is not from {least} to {most}")


def check_partitions(what: str, rows: Mapping[int, Iterable[int]]) -> None:
    """Check the partition numbers of a mapping, and the broker ids in its values.

    Raises:
        msgspec.ValidationError: one is out of range.

    """
    check_range("partition", rows, 0, MAX_NODE_PARTITION)
    for numbers in rows.values():
        check_range(what, numbers, 0)


def node_number(name: str) -> int | None:
    """Return the number that a node's name is, as numbers are usually written; None if it is none.

    Neither `01` nor digits of other scripts nor a number beyond 32 bits name a broker or partition.
    """
    if not (name.isascii() and name.isdecimal() and len(name) <= _MAX_DIGITS):
        return None
    number = int(name)
    return number if str(number) == name and number <= MAX_NUMBER else None


def pack_value(known: dict[str, Any], extra: Mapping[str, Any] | None) -> bytes:
    """Encode a value: its fields, and the `extra` ones that this release does not know."""
    members = {"version": VALUE_VERSION} | known
    return msgspec.json.encode({**extra, **members} if extra else members)


def unpack_value(data: bytes) -> dict[str, Any]:
    """Decode the fields of a value; raises msgspec.MsgspecError if it is not an object."""
    members = decode_json(data)
    if not isinstance(members, dict):
        raise msgspec.ValidationError("a znode value must be a JSON object")
    members.pop("version", None)
    return members


def decode_value(data: bytes, kind: type[_Struct], **defaults: Any) -> _Struct:
    """Decode a value that an operator may have written, and check the type of each field.

    An undetected wrong type would fail later, in a decision about many partitions or on a broker.
    `defaults` replace absent fields.
    """
    return convert_members(unpack_value(data), kind, **defaults)


def convert_members(members: dict[str, Any], kind: type[_Struct], **defaults: Any) -> _Struct:
    """Convert the fields of a value, and check the type of each; see `decode_value`."""
    names = [name for name in kind.__struct_encode_fields__ if name != "extra" and name in members]
    known = defaults | {name: members.pop(name) for name in names}
    return msgspec.convert(known | {"extra": members or None}, kind, str_keys=True)

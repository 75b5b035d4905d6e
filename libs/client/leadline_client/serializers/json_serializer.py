"""JSON by the standard library; and for a type of the application's, by msgspec."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, Generic, NoReturn

from leadline_client.extras import MissingExtra, installed
from leadline_client.serializers.protocols import Deserializer, Serializer
from leadline_client.type_parameters import T


class JsonSerializer(Generic[T]):
    """JSON in UTF-8.

    Without a type, values are what `json` of the standard library takes and returns. With one (a
    dataclass, a TypedDict, a NamedTuple, a msgspec.Struct, a container of those), `deserialize`
    returns that type, and refuses JSON that does not fit it. This needs the extra `json`.

    JSON's `null` is a value; a tombstone is a record whose value is None, and has no JSON.

        Consumer(address, value_deserializer=JsonSerializer(Order))

    Raises:
        MissingExtra: a type is given, and msgspec is not installed.
        TypeError: values of the type cannot be read from JSON.

    """

    def __init__(self, type: type[T] | None = None) -> None:  # noqa: A002 - what it is
        self._serializer: Serializer[Any] = _UntypedJson()
        self._deserializer: Deserializer[Any] = _UntypedJson()
        if type is not None:
            if not installed("msgspec"):
                raise MissingExtra("json", "JSON serializers of a type")
            library = import_module("leadline_client.serializers.typed_json")
            self._serializer = self._deserializer = library.TypedJson(type)

    def serialize(self, topic: str, value: T, /) -> bytes:
        """Return `value` as JSON, without spaces.

        Raises:
            TypeError, ValueError: it has no JSON form, for instance because of a NaN or a set.

        """
        return self._serializer.serialize(topic, value)

    def deserialize(self, topic: str, data: bytes, /) -> T:
        """Return the value of a document. Raises ValueError: it is not JSON, or not of the type."""
        value: T = self._deserializer.deserialize(topic, data)
        return value


class _UntypedJson:
    """The standard library's JSON, without what is no JSON: NaN, and other encodings."""

    def serialize(self, _topic: str, value: Any, /) -> bytes:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode()

    def deserialize(self, _topic: str, data: bytes, /) -> Any:
        return json.loads(data.decode(), parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")

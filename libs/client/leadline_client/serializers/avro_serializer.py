"""Avro by fastavro; the only module of the client library that imports it.

A record has Avro's single-object encoding: a mark, the fingerprint of the schema that it was
written with, and the body. Without the fingerprint, bytes of another schema could be read as
something else without an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, Generic, TypeAlias

from leadline_client.extras import MissingExtra
from leadline_client.type_parameters import T

try:
    import fastavro
    from fastavro import schema as schemas
except ImportError as error:
    raise MissingExtra("avro", "Avro serializers") from error

AvroSchema: TypeAlias = Mapping[str, Any] | Sequence[Any] | str
"""A schema: what its JSON stands for, its JSON as text, or the name of a primitive type."""

_MARK: Final = b"\xc3\x01"
_HEADER_BYTES: Final = len(_MARK) + 8


class AvroSerializer(Generic[T]):
    """Values of an Avro schema (extra `avro`).

    `schema`: what is written, and what values are read as. `writer_schemas`: schemas of records
    that were written before, which are read as `schema` by Avro's rules of schema resolution.
    `single_object`: whether records begin with the fingerprint of their schema; if not, the body
    stands alone, as some other programs write it, and a wrong schema may go unnoticed.
    `to_avro`, `from_avro`: convert values of the application, by default dictionaries.

    Raises:
        ValueError: a schema is invalid; or `writer_schemas` are given, and nothing would tell them
            apart because `single_object` is false.
        MissingExtra: on import, if fastavro is not installed.

    """

    def __init__(
        self,
        schema: AvroSchema,
        *,
        writer_schemas: Iterable[AvroSchema] = (),
        single_object: bool = True,
        to_avro: Callable[[T], Any] | None = None,
        from_avro: Callable[[Any], T] | None = None,
    ) -> None:
        self._schema = _parsed(schema)
        own = _fingerprint(self._schema)
        before = [_parsed(one) for one in writer_schemas]
        if before and not single_object:
            raise ValueError("records without a fingerprint have one schema: give no other")
        self._header = _MARK + own if single_object else b""
        self._writers = {_fingerprint(one): one for one in before} | {own: self._schema}
        self._to_avro = to_avro
        self._from_avro = from_avro

    def serialize(self, topic: str, value: T, /) -> bytes:  # noqa: ARG002 - Serializer's form
        """Return `value` as bytes. Raises what fastavro raises for a value of no such schema."""
        datum: Any = value if self._to_avro is None else self._to_avro(value)
        body = BytesIO()
        body.write(self._header)
        fastavro.schemaless_writer(body, self._schema, datum, strict=True)
        return body.getvalue()

    def deserialize(self, topic: str, data: bytes, /) -> T:  # noqa: ARG002 - see above
        """Return the value of `data`.

        Raises:
            ValueError: the record has no fingerprint, was written with a schema that is not given,
                or has bytes behind the value. Further errors are those of fastavro.

        """
        writer = self._writer_of(data) if self._header else self._schema
        body = BytesIO(data)
        body.seek(len(self._header))
        reader = None if writer is self._schema else self._schema
        datum: Any = fastavro.schemaless_reader(body, writer, reader)
        if left := len(data) - body.tell():
            raise ValueError(f"{left} bytes are left behind the value: it has another schema")
        value: T = datum if self._from_avro is None else self._from_avro(datum)
        return value

    def _writer_of(self, data: bytes) -> Any:
        """Return the schema that a record was written with."""
        if len(data) < _HEADER_BYTES or not data.startswith(_MARK):
            raise ValueError("the record has no fingerprint of an Avro schema (single_object)")
        fingerprint = data[len(_MARK) : _HEADER_BYTES]
        if fingerprint not in self._writers:
            known = ", ".join(sorted(one.hex() for one in self._writers))
            raise ValueError(
                f"the record was written with the schema of fingerprint {fingerprint.hex()}, "
                f"known are {known}: give it in writer_schemas"
            )
        return self._writers[fingerprint]


def _parsed(schema: AvroSchema) -> Any:
    """Return a schema as fastavro needs it."""
    try:
        given: Any = schema
        if isinstance(schema, str) and schema[:1] in '{["':
            given = json.loads(schema)
        return schemas.parse_schema(given)
    except (schemas.SchemaParseException, schemas.UnknownType, ValueError) as error:
        raise ValueError(f"the Avro schema is invalid: {error}") from error


def _fingerprint(schema: Any) -> bytes:
    """Return the CRC-64-AVRO of the canonical form, in the byte order of the encoding."""
    form = schemas.to_parsing_canonical_form(schema)
    return bytes.fromhex(schemas.fingerprint(form, "CRC-64-AVRO"))

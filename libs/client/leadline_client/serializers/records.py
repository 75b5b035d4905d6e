"""Serializers applied to whole records, with errors that say where a record was or was to go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, cast

from leadline_client.batches import LATEST_TIMESTAMP, stored_records
from leadline_client.codec import SupportsStored
from leadline_client.errors import DeserializationFailed, InvalidRequest, SerializationFailed
from leadline_client.payloads import OutgoingRecord, outgoing_of
from leadline_client.serializers.protocols import Deserializer, Serializer
from leadline_client.type_parameters import K, V
from leadline_client.unreadable import MOST_HEADERS
from leadline_client.wire import Record, TopicPartition

_BYTES = bytes | bytearray | memoryview


class RecordSerializer(Generic[K, V]):
    """Makes records of keys and values; without a serializer these are bytes already."""

    def __init__(self, key: Serializer[K] | None, value: Serializer[V] | None) -> None:
        self._key = key
        self._value = value

    @property
    def serializes(self) -> bool:
        """Whether there is a serializer at all."""
        return self._key is not None or self._value is not None

    def record(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp: int | None,
    ) -> OutgoingRecord:
        """Return the record to send.

        Raises:
            SerializationFailed: a serializer cannot take the key or the value.
            InvalidRequest: a header is not a name (text) with a value (bytes or None), there are
                too many, or no record can have the time. Such a record would fail its whole batch.

        """
        if timestamp is not None and not 0 <= timestamp <= LATEST_TIMESTAMP:
            why = "negative" if timestamp < 0 else "too large"
            raise InvalidRequest(f"the timestamp {timestamp} is {why}; nothing was sent")
        pairs = tuple(headers)
        if pairs:
            _check_headers(topic, pairs)
        serialized = _serialized("value", topic, value, self._value)
        return outgoing_of(
            (serialized, _serialized("key", topic, key, self._key), pairs, timestamp)
        )

    def records(
        self, topic: str, values: Iterable[V | None], keys: Iterable[K | None] | None
    ) -> list[OutgoingRecord]:
        """Return the records to send of many values, with one of `keys` each, if any are given.

        Raises:
            SerializationFailed: a serializer cannot take a key or a value.
            InvalidRequest: there are not as many keys as values.

        """
        made = [_serialized("value", topic, value, self._value) for value in values]
        if keys is None:
            return [outgoing_of((value, None, (), None)) for value in made]
        made_keys = [_serialized("key", topic, key, self._key) for key in keys]
        if len(made_keys) != len(made):
            raise InvalidRequest(f"{len(made_keys)} keys for {len(made)} values; nothing was sent")
        return [
            outgoing_of((value, key, (), None)) for value, key in zip(made, made_keys, strict=True)
        ]


def _check_headers(topic: str, headers: Sequence[Any]) -> None:
    if len(headers) > MOST_HEADERS:
        raise InvalidRequest(
            f"a record for {topic!r} has {len(headers)} headers; at most {MOST_HEADERS} are "
            "allowed; nothing was sent"
        )
    for header in headers:
        match header:
            case (str() as name, None | bytes()) if _is_encodable(name):
                continue
        raise InvalidRequest(
            f"a header of a record for {topic!r} is no pair of a name (text) and a value (bytes or "
            "None); nothing was sent"
        )


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _serialized(part: str, topic: str, given: Any, serializer: Serializer[Any] | None) -> Any:
    if given is None:
        return None
    if serializer is None:
        if isinstance(given, _BYTES):
            return given
        kind = type(given).__name__
        raise SerializationFailed(
            f"the {part} of a record for {topic!r} is a {kind}: give bytes, or the producer a "
            f"{part}_serializer; nothing was sent"
        )
    try:
        data = serializer.serialize(topic, given)
    except Exception as error:
        # Serializers are the application's; whatever they raise refuses this record alone.
        raise SerializationFailed(
            f"the {part} of a record for {topic!r} cannot be serialized: "
            f"{type(error).__name__}: {error}; nothing was sent"
        ) from error
    if not isinstance(data, _BYTES):
        kind = type(data).__name__
        raise SerializationFailed(
            f"the {part}_serializer returned a {kind} for {topic!r}, not bytes; nothing was sent"
        )
    return data


class RecordDeserializer(Generic[K, V]):
    """Makes typed records of stored ones; without a deserializer keys and values stay bytes."""

    def __init__(self, key: Deserializer[K] | None, value: Deserializer[V] | None) -> None:
        self._key = key
        self._value = value

    @property
    def keeps_bytes(self) -> bool:
        """Whether keys and values stay as they are stored, so that nothing can fail."""
        return self._key is None and self._value is None

    def record(self, place: TopicPartition, stored: Record) -> Record[K, V]:
        """Return a record with its key and value deserialized. Raises DeserializationFailed."""
        if self.keeps_bytes:
            return cast("Record[K, V]", stored)
        key, value = self.key_and_value(place, stored)
        return Record(stored.offset, stored.timestamp, key, value, stored.headers)

    def key_and_value(
        self, place: TopicPartition, stored: SupportsStored
    ) -> tuple[K | None, V | None]:
        """Return the key and the value of a record. Raises DeserializationFailed."""
        return (
            _deserialized("key", place, stored, self._key, stored.key),
            _deserialized("value", place, stored, self._value, stored.value),
        )


def _deserialized(
    part: str,
    place: TopicPartition,
    stored: SupportsStored,
    deserializer: Deserializer[Any] | None,
    data: bytes | None,
) -> Any:
    if data is None or deserializer is None:
        return data
    try:
        return deserializer.deserialize(place.topic, data)
    except Exception as error:
        # Records come from anybody: no content of one may end more than its own delivery.
        [record] = stored_records([stored])
        raise DeserializationFailed.of(place, record, part, error) from error

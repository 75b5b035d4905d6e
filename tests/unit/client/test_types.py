"""What type checkers know: mypy checks this file (`make types`), and fails where a type differs.

An expectation that something is refused is a `type: ignore`, which mypy reports once it is unused.
The functions are only checked; the test runs mypy on this file alone.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

from google.protobuf.timestamp_pb2 import Timestamp
from mypy import api

from leadline_client import (
    AsyncClient,
    AsyncConsumer,
    AsyncPartitionReader,
    AsyncProducer,
    AvroSerializer,
    Client,
    ConsumedRecord,
    Consumer,
    Deserializer,
    JsonSerializer,
    PartitionReader,
    Producer,
    ProtobufSerializer,
    Record,
    RecordFuture,
    RecordMetadata,
    Serializer,
    StringSerializer,
)

ROOT = Path(__file__).resolve().parents[3]
ADDRESS = "127.0.0.1:9092"


@dataclass
class Order:
    cents: int


def bytes_without_serializers(client: Client) -> None:
    assert_type(Producer(ADDRESS), Producer[bytes, bytes])
    assert_type(Consumer(ADDRESS), Consumer[bytes, bytes])
    assert_type(Consumer(ADDRESS).poll(), list[ConsumedRecord[bytes, bytes]])
    assert_type(PartitionReader(client, "t", 0).read(), list[Record[bytes, bytes]])
    assert_type(Producer(ADDRESS).send("t", b"value", key=b"key"), Future[RecordMetadata])
    Producer(ADDRESS).send("t", "value")  # type: ignore[arg-type] # text needs a serializer


def bare_names_mean_bytes(producer: Producer, consumer: Consumer, record: Record) -> None:
    assert_type(producer, Producer[bytes, bytes])
    assert_type(next(iter(consumer)).record.value, bytes | None)
    assert_type(record.key, bytes | None)


def types_of_serializers(client: Client) -> None:
    orders = Consumer(
        ADDRESS, key_deserializer=StringSerializer(), value_deserializer=JsonSerializer(Order)
    )
    assert_type(orders, Consumer[str, Order])
    assert_type(orders.poll()[0].record.value, Order | None)
    assert_type(orders.poll()[0].record.key, str | None)
    only_value = PartitionReader(client, "t", 0, value_deserializer=ProtobufSerializer(Timestamp))
    assert_type(only_value.read()[0].key, bytes | None)
    assert_type(only_value.read()[0].value, Timestamp | None)
    anything = Consumer(ADDRESS, value_deserializer=JsonSerializer())
    assert_type(anything.poll()[0].record.value, Any | None)
    producer = Producer(ADDRESS, value_serializer=JsonSerializer(Order))
    producer.send("t", Order(1), key=b"k")
    producer.send("t", None)
    producer.send("t", {"cents": 1})  # type: ignore[arg-type] # no Order
    producer.send("t", Order(1), key="k")  # type: ignore[arg-type] # only values are serialized
    Consumer(ADDRESS, value_deserializer=Order)  # type: ignore[arg-type] # no deserializer


async def the_same_on_an_event_loop(client: AsyncClient) -> None:
    producer = AsyncProducer(client, key_serializer=StringSerializer())
    assert_type(await producer.send("t", b"v", key="k"), RecordFuture)
    consumer = AsyncConsumer(client, value_deserializer=AvroSerializer[Order]("int"))
    assert_type((await consumer.poll())[0].record, Record[bytes, Order])
    reader = AsyncPartitionReader(client, "t", 0, key_deserializer=StringSerializer())
    assert_type((await reader.read())[0], Record[str, bytes])


class Own:
    """A serializer of an application's: it only has to have the methods."""

    def serialize(self, _topic: str, value: Order, /) -> bytes:
        return str(value.cents).encode()

    def deserialize(self, _topic: str, data: bytes, /) -> Order:
        return Order(int(data))


def own_serializers() -> None:
    serializer: Serializer[Order] = Own()
    deserializer: Deserializer[Order] = Own()
    wider: Deserializer[object] = deserializer
    narrower: Serializer[str] = serializer  # type: ignore[assignment] # it takes orders
    assert_type(Consumer(ADDRESS, value_deserializer=Own()).poll()[0].record.value, Order | None)
    assert_type(wider, Deserializer[object])
    assert_type(narrower, Serializer[str])


def test_the_types_are_as_this_file_says() -> None:
    said, problems, code = api.run(["--config-file", str(ROOT / "pyproject.toml"), __file__])
    assert code == 0, said + problems

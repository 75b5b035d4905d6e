"""Requests of simulated clients, which the brokers' HTTP layer decodes otherwise."""

from __future__ import annotations

import msgspec

PRODUCE_PATH = "/v1/produce"


class Produce(msgspec.Struct):
    """A batch to append with acks=all."""

    topic: str
    partition: int
    batch: bytes
    timeout_ms: int
    leader_epoch: int | None = None


class Produced(msgspec.Struct):
    """Where the batch stands."""

    base_offset: int
    leader_epoch: int
    duplicate: bool = False


FETCH_PATH = "/v1/fetch"


class Fetch(msgspec.Struct):
    """Asks for committed batches from an offset on."""

    topic: str
    partition: int
    offset: int
    wait_ms: int


class Fetched(msgspec.Struct):
    """Whole batches, of which the first may begin before the offset."""

    records: bytes
    next_offset: int


PRODUCER_ID_PATH = "/v1/producer-ids"


class NewProducerId(msgspec.Struct):
    """Asks for a producer id."""


class ProducerId(msgspec.Struct):
    """A new producer id; its first epoch is 0."""

    id: int

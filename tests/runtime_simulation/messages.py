"""Requests of simulated clients and operators, which the HTTP layer decodes otherwise."""

from __future__ import annotations

import msgspec

PRODUCE_PATH = "/v1/produce"


class Produce(msgspec.Struct):
    """A batch to append with acks=all."""

    topic: str
    partition: int
    batch: bytes
    timeout_ms: int
    topic_id: str
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
    last_epoch: int | None = None


class Fetched(msgspec.Struct):
    """Whole batches, of which the first may begin before the offset."""

    records: bytes
    next_offset: int
    topic_id: str


PRODUCER_ID_PATH = "/v1/producer-ids"


class NewProducerId(msgspec.Struct):
    """Asks for a producer id."""


class ProducerId(msgspec.Struct):
    """A new producer id; its first epoch is 0."""

    id: int


STAGE_PATH = "/v1/stage"


class Stage(msgspec.Struct):
    """Batches to keep for a later publish."""

    topic: str
    partition: int
    batches: bytes


class Staged(msgspec.Struct):
    """The batches are kept under this id."""

    staged_id: str


PUBLISH_PATH = "/v1/publish"


class Publish(msgspec.Struct):
    """What an application staged is its batch of this number, in this order."""

    topic: str
    partition: int
    app: str
    batch: int
    staged: tuple[str, ...]
    timeout_ms: int


class Published(msgspec.Struct):
    """The batch is in the log, between these offsets where they are known."""

    base_offset: int | None
    last_offset: int | None
    duplicate: bool = False


CREATE_TOPIC_PATH = "/v1/topics/create"
DELETE_TOPIC_PATH = "/v1/topics/delete"
ADD_PARTITIONS_PATH = "/v1/topics/partitions/add"
REMOVE_PARTITIONS_PATH = "/v1/topics/partitions/remove"
REASSIGN_PATH = "/v1/reassignments/submit"
CANCEL_PATH = "/v1/reassignments/cancel"
CONFIGURE_PATH = "/v1/configs/alter"
ELECT_PATH = "/v1/elections"


class Create(msgspec.Struct):
    """Creates a topic, whose replicas the controller places."""

    topic: str
    partitions: int
    replication_factor: int
    configs: dict[str, str] = {}


class Delete(msgspec.Struct):
    """Deletes a topic, and waits for that."""

    topic: str
    wait_ms: int


class MorePartitions(msgspec.Struct):
    """Adds partitions up to a total number."""

    topic: str
    total: int


class FewerPartitions(msgspec.Struct):
    """Removes partitions, the highest ones."""

    topic: str
    partitions: tuple[int, ...]


class Reassign(msgspec.Struct):
    """Gives a partition other replicas, also while it is being reassigned with `retarget`."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    retarget: bool


class Cancel(msgspec.Struct):
    """Cancels the reassignment of a partition."""

    topic: str
    partition: int


class Configure(msgspec.Struct):
    """Sets and removes configs of a topic, or of the cluster without a name."""

    topic: str
    configs: dict[str, str]
    remove: tuple[str, ...] = ()


class Elect(msgspec.Struct):
    """Elects a leader of a partition uncleanly."""

    topic: str
    partition: int


class Done(msgspec.Struct):
    """The request has been carried out; not `complete` when it goes on."""

    complete: bool = True

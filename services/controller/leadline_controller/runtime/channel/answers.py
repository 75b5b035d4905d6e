"""What brokers answer to the controller's requests."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

import msgspec
import structlog

from leadline_client.wire import TopicPartition
from leadline_common import rpc
from leadline_controller.runtime.channel.requests import BrokerRequest

logger = structlog.get_logger(__name__)

NO_VERSION: Final = -1
MALFORMED: Final = -1

_commands: Final = msgspec.json.Decoder(rpc.CommandResponse)
_metadata: Final = msgspec.json.Decoder(rpc.UpdateMetadataResponse)


class Refusal(NamedTuple):
    """A partition of a request that a broker refused, and the code of the error."""

    partition: TopicPartition
    code: int


def refusals(
    broker_id: int,
    request: BrokerRequest,
    answer: bytes,
    accepted: tuple[int, ...] = (rpc.NO_ERROR,),
) -> list[Refusal]:
    """Return what a broker refused of a request: everything, if its answer is malformed."""
    codes: list[list[int]] = []
    with contextlib.suppress(msgspec.DecodeError):
        codes = _commands.decode(answer).codes
    if [len(row) for row in codes] != [len(numbers) for _, numbers in request.partitions]:
        logger.error("broker answered with codes that do not fit", broker=broker_id)
        codes = [[MALFORMED] * len(numbers) for _, numbers in request.partitions]
    return [
        Refusal(TopicPartition(topic, number), code)
        for (topic, numbers), row in zip(request.partitions, codes, strict=True)
        for number, code in zip(numbers, row, strict=True)
        if code not in accepted
    ]


def metadata_version(answer: bytes) -> int:
    """Return the version of the metadata that a broker has, NO_VERSION if it does not say."""
    with contextlib.suppress(msgspec.DecodeError):
        return _metadata.decode(answer).version
    return NO_VERSION

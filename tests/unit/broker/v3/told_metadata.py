"""Metadata as a controller tells it to broker 1 of two."""

from __future__ import annotations

from collections.abc import Sequence

from leadline_common.rpc import BrokerRow, ControllerRow, TopicRows, UpdateMetadataRequest


def told(
    version: int, topics: Sequence[TopicRows], *, deleted: Sequence[str] = (), full: bool = True
) -> UpdateMetadataRequest:
    """Return all metadata, or what has changed in them since the version before."""
    return UpdateMetadataRequest(
        broker_id=1,
        incarnation=1,
        cluster_id="c",
        controller=ControllerRow(1, "", 1),
        cause="test",
        version=version,
        base_version=0 if full else version - 1,
        full=full,
        brokers=[BrokerRow(1, "http://b", None, 1), BrokerRow(2, "http://d", None, 1)],
        topics=list(topics),
        deleted=list(deleted),
    )

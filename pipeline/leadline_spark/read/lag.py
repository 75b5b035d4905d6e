"""How far a streaming query is behind, from its own progress.

Spark takes no metrics from Python sources, so the three that its Kafka source reports are reckoned
here, under the same names, from the offsets that every progress holds:

    offsets_behind_latest(query.lastProgress)
    {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 7, "avgOffsetsBehindLatest": 2.5}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from leadline_spark.read.offsets import SourceOffset

Lag = dict[str, float]


def offsets_behind_latest(progress: Any, source: int = 0) -> Lag | None:
    """Return the lag of a source of a progress, over its partitions, in offsets.

    `progress` is what `query.lastProgress` or a listener has: the object, its JSON, or a mapping.
    None where the source has not reported both offsets yet.
    """
    if isinstance(progress, str):
        progress = json.loads(progress)
    elif progress is not None and not isinstance(progress, Mapping):
        progress = json.loads(progress.json)
    sources = (progress or {}).get("sources", [])
    if len(sources) <= source:
        return None
    end, latest = (_offset(sources[source].get(name)) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    behind = [
        max(0, at.offset - end.positions[topic_partition].offset)
        for topic_partition, at in latest.positions.items()
        if topic_partition in end.positions
    ]
    if not behind:
        return None
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offset(shown: Any) -> SourceOffset | None:
    document = json.loads(shown) if isinstance(shown, str) else shown
    return SourceOffset.of(document) if isinstance(document, Mapping) else None

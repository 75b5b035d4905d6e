"""Metadata that are made in turns before they are applied are those that would be made at once."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.runtime.cluster import metadata
from leadline_broker.runtime.cluster.metadata import NOTHING_PREPARED, ClusterMetadataCache
from leadline_common.metadata_tags import MetadataTag
from leadline_common.rpc import ControllerRow, PartitionRow, TopicRows, UpdateMetadataRequest

NAMES = ("a", "b", "c")
Content = dict[str, tuple[int, ...]]
"""The leader of each partition of a topic."""

contents = st.dictionaries(
    st.sampled_from(NAMES), st.lists(st.integers(1, 2), min_size=1, max_size=3).map(tuple)
)
updates = st.lists(
    st.tuples(st.booleans(), contents, st.sets(st.sampled_from(NAMES)), st.booleans()), max_size=8
)
"""Whether it is full, its topics, those it deletes, and whether it was made before the last one."""


def request_of(
    version: int, content: Content, deleted: set[str], *, full: bool
) -> UpdateMetadataRequest:
    topics = [
        TopicRows(
            name,
            f"id-{name}",
            {},
            [PartitionRow(n, leader, 1, (leader,), (1, 2), 1) for n, leader in enumerate(leaders)],
        )
        for name, leaders in content.items()
    ]
    gone = [] if full else sorted(deleted - content.keys())
    controller = ControllerRow(1, "http://127.0.0.1:1", 1)
    return UpdateMetadataRequest(
        "c", controller, 1, 1, version, version - 1, full, "cause", [], topics, gone
    )


@given(updates)
def test_what_was_prepared_makes_no_difference(
    steps: list[tuple[bool, Content, set[str], bool]],
) -> None:
    asyncio.run(apply_both_ways(steps))


async def apply_both_ways(steps: list[tuple[bool, Content, set[str], bool]]) -> None:
    plain, prepared = ClusterMetadataCache(), ClusterMetadataCache()
    waiting = NOTHING_PREPARED
    for version, (full, content, deleted, _) in enumerate(steps, start=1):
        request = request_of(version, content, deleted, full=full or version == 1)
        made = waiting
        if waiting is NOTHING_PREPARED:
            made = await prepared.prepare(request)
        waiting = NOTHING_PREPARED
        if version < len(steps) and steps[version][3]:
            later_full, later, gone, _ = steps[version]
            early = request_of(version + 1, later, gone, full=later_full)
            waiting = await prepared.prepare(early)
        plain.apply(request)
        prepared.apply(request, made)

        assert prepared.document() == plain.document()
        for earlier in range(version + 1):
            base = MetadataTag(1, earlier)
            both = [await cache.changes(base, sorted) for cache in (plain, prepared)]
            assert both[0] == both[1]


async def test_others_run_while_it_is_made() -> None:
    cache = ClusterMetadataCache()
    rows = metadata._ROWS_AT_ONCE
    request = request_of(1, dict.fromkeys(NAMES, (1,) * rows), set(), full=True)
    making = asyncio.create_task(cache.prepare(request))
    turns = 0
    while not making.done():
        await asyncio.sleep(0)
        turns += 1

    cache.apply(request, making.result())

    assert turns >= len(NAMES)
    assert cache.topic_names() == list(NAMES)

"""How many entries the audit outbox has had, as ZooKeeper counts in 32 bits."""

from __future__ import annotations

import ctypes

import pytest

from leadline_common.zk.ops import Stat
from leadline_controller.adapters.outbox import created_below


def stat_of(created: int, present: int) -> Stat:
    """Return what ZooKeeper says of a node that has had so many children (`DataNode.copyStat`)."""
    return Stat(
        czxid=1,
        mzxid=1,
        ctime=0,
        mtime=0,
        version=0,
        cversion=ctypes.c_int32(2 * created - present).value,
        aversion=0,
        ephemeral_owner=0,
        data_length=0,
        num_children=present,
        pzxid=1,
    )


@pytest.mark.parametrize("created", [0, 1, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1])
@pytest.mark.parametrize("present", [0, 1, 500])
def test_entries_are_counted_beyond_half_of_the_range(created: int, present: int) -> None:
    """A negative number would say that ZooKeeper is an older copy: no controller would lead."""
    left = min(present, created)
    assert created_below(stat_of(created, left)) == created

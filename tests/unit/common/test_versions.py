"""Protocol versions: which releases can run side by side."""

from __future__ import annotations

import pytest

from leadline_common import znodes
from leadline_common.versions import (
    FIRST_PROTOCOL,
    IncompatibleRelease,
    SpokenVersions,
    require_compatible,
)


@pytest.mark.parametrize(("oldest", "newest"), [(1, 2), (2, 2), (3, 5), (1, 9)])
def test_overlapping_versions_are_compatible(oldest: int, newest: int) -> None:
    own = SpokenVersions("broker 1", "b", 2, 3)
    require_compatible(own, [SpokenVersions("broker 2", "a", oldest, newest)])


@pytest.mark.parametrize(("oldest", "newest"), [(1, 1), (4, 4)])
def test_versions_without_overlap_are_refused_by_name(oldest: int, newest: int) -> None:
    own = SpokenVersions("broker 1", "b", 2, 3)
    others = [
        SpokenVersions("broker 2", "b", 2, 3),
        SpokenVersions("controller 7", "a", oldest, newest),
    ]
    with pytest.raises(IncompatibleRelease, match=r"broker 1 .*controller 7 \(release a\)"):
        require_compatible(own, others)


def test_a_registration_without_versions_speaks_the_first() -> None:
    old = b'{"id":1,"host":"h","port":1,"url":"http://h:1","rack":null,"incarnation":4}'
    broker = znodes.decode_broker(old)
    assert (broker.oldest_protocol, broker.newest_protocol) == (FIRST_PROTOCOL, FIRST_PROTOCOL)
    assert broker.release == ""

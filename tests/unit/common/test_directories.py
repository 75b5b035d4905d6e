"""Directory epochs: which log directory a membership belongs to (rule R17)."""

from __future__ import annotations

from leadline_common import znodes
from leadline_common.directories import (
    MAX_DIRECTORIES,
    kept_epochs,
    membership_epoch,
    next_directories,
)
from leadline_common.znodes import PartitionState


def test_defect_01_a_returning_directory_keeps_its_epoch() -> None:
    known: dict[str, int] = {}
    for directory in ("a", "b", "a", "c"):
        known = next_directories(known, [directory])

    assert known == {"a": 1, "b": 2, "c": 3}


def test_defect_01_an_epoch_is_never_used_twice_and_the_map_stays_small() -> None:
    known: dict[str, int] = {}
    for number in range(3 * MAX_DIRECTORIES):
        known = next_directories(known, ["first", str(number)])
        assert known[str(number)] == number + 2

    assert known["first"] == 1, "what is present is never forgotten"
    assert len(known) <= MAX_DIRECTORIES + 1
    assert next_directories(known, ["0"])["0"] == 3 * MAX_DIRECTORIES + 2, "forgotten: a new one"


def test_defect_01_members_keep_their_epochs_and_joiners_bring_theirs() -> None:
    assert kept_epochs(None, (1, 2), {3: 1}) is None
    assert kept_epochs(None, (1, 3), {3: 2}) == {3: 2}
    assert kept_epochs({3: 2, 2: 4}, (1, 3), {}) == {3: 2}
    assert kept_epochs({3: 2}, (1, 3), {3: 1}) is None
    assert membership_epoch({3: 2}, 3) == 2
    assert membership_epoch({3: 2}, 1) == membership_epoch(None, 1) == 1


def test_defect_01_a_state_names_only_the_epochs_that_are_not_the_first() -> None:
    plain = znodes.encode_state(PartitionState(1, 5, (1, 2), 7))
    assert b"directory" not in plain
    bound = PartitionState(1, 5, (1, 2), 7, directory_epochs={2: 3})
    assert znodes.decode_state(znodes.encode_state(bound)) == bound

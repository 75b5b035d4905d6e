"""The fuzz targets hold for their seeds and for changed ones; `tests.fuzz` runs them longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, Target, check_and_decode
from tests.support.bad_input.batches import good


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_no_findings(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_changed_seeds_are_no_findings(name: str, data: st.DataObject) -> None:
    seed = bytearray(data.draw(st.sampled_from(TARGETS[name].seeds)))
    for _ in range(data.draw(st.integers(0, 4)) if seed else 0):
        seed[data.draw(st.integers(0, len(seed) - 1))] = data.draw(st.integers(0, 255))
    TARGETS[name](bytes(seed) + data.draw(st.binary(max_size=9)))


def test_a_good_batch_gets_through_to_the_records() -> None:
    check_and_decode(good("lz4"))


def test_another_error_is_a_finding() -> None:
    with pytest.raises(ZeroDivisionError):
        Target(lambda _: 1 / 0, (ValueError,), ())(b"")

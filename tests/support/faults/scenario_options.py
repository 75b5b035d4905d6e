"""`pytest --scenario S17 --fault-seed 3 --minutes 60`: one fault scenario, its seed and length.

A test asks for the fixture `seeded` for what it decides by chance, and for `mix_minutes` for how
long the random mix (S30) goes on.
"""

from __future__ import annotations

import argparse
from random import Random

import pytest

from tests.support.faults.catalogue import SCENARIOS

DEFAULT_SEED = 1


def _numbers(text: str) -> frozenset[str]:
    """Return the scenarios of an option. Raises ArgumentTypeError if there is no such scenario."""
    numbers = frozenset(text.split(","))
    if strangers := numbers.difference(SCENARIOS):
        raise argparse.ArgumentTypeError(f"there is no scenario {', '.join(sorted(strangers))}")
    return numbers


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("fault scenarios")
    group.addoption(
        "--scenario",
        type=_numbers,
        metavar="S1[,S2 …]",
        help="run only the tests of these scenarios (tests/support/faults/catalogue.py)",
    )
    group.addoption("--fault-seed", type=int, default=DEFAULT_SEED, help="decides on the faults")
    group.addoption("--minutes", type=float, default=0.0, help="how long S30 goes on; 0: shortly")


def pytest_report_header(config: pytest.Config) -> str:
    """Name the seed, by which a failure can be repeated."""
    return f"fault seed: {config.getoption('--fault-seed')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is no test of the scenario that is asked for.

    Raises:
        UsageError: a test is marked with a scenario that does not exist.

    """
    for item in items:
        for mark in item.iter_markers("scenario"):
            if strangers := set(mark.args) - set(SCENARIOS):
                raise pytest.UsageError(f"{item.nodeid}: there is no scenario {strangers}")
    asked = config.getoption("--scenario")
    if asked is None:
        return
    chosen = {
        item
        for item in items
        if any(not asked.isdisjoint(mark.args) for mark in item.iter_markers("scenario"))
    }
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


@pytest.fixture
def seeded(request: pytest.FixtureRequest) -> Random:
    """Return what decides by chance: the seed of this run, and the name of the test."""
    seed = request.config.getoption("--fault-seed")
    return Random(f"{seed} {request.node.name}")


@pytest.fixture
def mix_minutes(request: pytest.FixtureRequest) -> float:
    """Return for how long the random mix is to go on; 0 if nobody said it."""
    minutes: float = request.config.getoption("--minutes")
    return minutes

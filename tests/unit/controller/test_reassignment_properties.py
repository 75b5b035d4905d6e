"""Invariants I1 to I11 over generated inputs: single steps, and whole executions under faults.

CI runs a share. All 120,000 executions, over a million actions, in a minute:

    .venv/bin/python -m pytest tests/unit/controller/test_reassignment_properties.py -m soak
"""

from __future__ import annotations

import pytest

from tests.unit.controller.reassignment_world import INCREMENTAL, LEGACY, run_world

CI_EXECUTIONS, SLOW_EXECUTIONS, ALL_EXECUTIONS = 5_000, 12_000, 120_000


def run_executions(seeds: range) -> None:
    for seed in seeds:
        algorithm = LEGACY if seed % 8 == 7 else INCREMENTAL
        try:
            run_world(seed, algorithm)
        except Exception as failure:
            failure.add_note(f"seed {seed}, {algorithm}")
            raise


def test_executions_under_faults() -> None:
    run_executions(range(CI_EXECUTIONS))


@pytest.mark.slow
def test_more_executions_under_faults() -> None:
    run_executions(range(CI_EXECUTIONS, SLOW_EXECUTIONS))


@pytest.mark.soak
def test_many_executions_under_faults() -> None:
    run_executions(range(SLOW_EXECUTIONS, ALL_EXECUTIONS))

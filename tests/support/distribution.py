"""Which tests stay together in one process, where there are several (`-n 3 --dist loadscope`).

Those that share a cluster: the tests of one file, or of one directory. In a browser each test works
alone, but for those of the console. pytest-xdist's own groups (`--dist loadgroup`) are not used:
with pytest 9.2 they have no effect (pytest-xdist issue 1386).
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SHARE_A_CLUSTER = ("contract", "secure", "spark")
"""Directories of tests whose fixtures are for all of them."""
CONSOLE = "test_console"
"""What files of browser tests begin with whose tests take turns on one cluster."""


class ClusterScheduling(LoadScopeScheduling):
    """Runs the tests that share a cluster one after another in one process."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ClusterScheduling | None:
    """Return the scheduler for `--dist loadscope`; None leaves the choice to pytest-xdist."""
    return ClusterScheduling(config, log) if config.getoption("dist") == "loadscope" else None


def scope_of(node_id: str) -> str:
    """Return a name that is the same for the tests that stay together."""
    file = node_id.partition("::")[0]
    tier = PurePosixPath(file).parent.name
    if tier in SHARE_A_CLUSTER:
        return tier
    works_alone = tier == "browser" and not PurePosixPath(file).name.startswith(CONSOLE)
    return node_id if works_alone else file

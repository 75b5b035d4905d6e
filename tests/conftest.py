"""Fixtures for all tests; each lives in a module of tests/support."""

import re
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile(
    "patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

pytest_plugins = [
    "tests.support.retry_alone",
    "tests.support.services.zookeeper",
    "tests.support.services.controller_rig",
]

SHARE_A_CLUSTER = ("contract", "spark")
"""Directories of tests whose fixtures are for all of them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Keep tests that share a cluster in one process, where there are several (`-n 2`).

    That is those of one file, or of one directory; but in a browser each works alone.
    """
    for item in items:
        tier = item.path.parent.name
        if tier in SHARE_A_CLUSTER:
            group = tier
        elif tier == "browser":
            group = re.sub(r"\W", "-", item.nodeid)
        else:
            group = str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))

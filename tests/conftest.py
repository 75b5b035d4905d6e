"""Fixtures for all tests; each lives in a module of tests/support."""

pytest_plugins = ["tests.support.zookeeper", "tests.support.controller_rig"]

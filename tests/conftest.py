"""Fixtures for all tests; each lives in a module of tests/support."""

import os
import signal

from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile(
    "patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

# ZooKeeper and Spark live for seconds here: compiling their code twice costs more than it gains.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Some shells have what they run in the background ignore Ctrl-C, and so would its children here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.support.collector",
    "tests.support.distribution",
    "tests.support.faults.scenario_options",
    "tests.support.left_out",
    "tests.support.retry_alone",
    "tests.support.services.zookeeper",
]

"""How many files a process may open: as many as it can have, and half of them connections."""

from __future__ import annotations

import resource
import subprocess
import sys

from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.metrics import Metrics
from leadline_common.settings import ServiceSettings

RAISED = """
import resource
from leadline_common.open_files import open_files_limit, raise_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 300))
raise_open_files()
print(open_files_limit())
"""


def test_the_limit_is_raised_as_far_as_it_may() -> None:
    raised = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, check=True)
    assert raised.stdout == b"300\n"


def test_connections_leave_half_of_the_open_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        bounds = ConnectionBounds(ServiceSettings(), Metrics(process=False))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [bounds.admit("127.0.0.1") for _ in range(251)] == [True] * 250 + [False]

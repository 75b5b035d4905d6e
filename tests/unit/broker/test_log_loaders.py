"""Threads that open logs side by side decode their first files at the same moment.

msgspec prepares a type when it is first used. A second thread that uses it meanwhile finds it half
prepared, and the process ends by SIGSEGV. So the modules prepare the types when they are imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from leadline_broker.adapters.log.layout import PartitionIdentity, write_identity
from leadline_broker.adapters.log.snapshots import write_snapshot
from leadline_broker.domain.producers import ProducerStates, SequencedBatch

ROWS = [(7, 0, 1, (SequencedBatch(0, 4, 0),)), (8, 0, 1, (SequencedBatch(0, 9, 5),))]
TRIES = 60
"""Without the preparation one in ten ends by a signal."""
FORKS = """
import os, sys
from pathlib import Path
from threading import Barrier, Thread
from leadline_broker.adapters.log.layout import read_identity
from leadline_broker.adapters.log.snapshots import latest_snapshot

folder = Path(sys.argv[1])

def read(together):
    together.wait()
    latest_snapshot(folder, 10, 0)
    read_identity(folder)

def load():
    sys.setswitchinterval(1e-6)
    together = Barrier(4)
    threads = [Thread(target=read, args=[together]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        load()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        sys.exit(f"ended by status {status}")
"""


def test_several_threads_may_decode_the_first_files_of_a_process(tmp_path: Path) -> None:
    write_identity(tmp_path, PartitionIdentity("orders", "id", 0))
    write_snapshot(tmp_path, 10, ProducerStates(ROWS))
    command = [sys.executable, "-c", FORKS, str(tmp_path), str(TRIES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

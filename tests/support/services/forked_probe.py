"""A module to fork: it prints a line of JSON about its process, then does as its argument says."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> None:
    """Print the state of this process; then sleep, fail, or exit with a number."""
    state = {
        "drawn": [random.random(), random.Random().random(), uuid.uuid4().hex, secrets.token_hex()],
        "argv": sys.argv,
        "directory": str(Path.cwd()),
        "environment": dict(os.environ),
        "fds": sorted(int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.exists()),
        "session": os.getsid(0) == os.getpid(),
        "signals": [signal.getsignal(n) == signal.SIG_DFL for n in (15, 17)],
        "interruptible": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "masked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "stdin": os.readlink("/proc/self/fd/0"),  # noqa: PTH115 - not a path of a file
    }
    print(json.dumps(state), flush=True)  # noqa: T201 - what the test reads
    todo = arguments[0] if arguments else "sleep"
    if todo == "sleep":
        time.sleep(600)
    if todo == "fail":
        raise RuntimeError("failed as asked")
    raise SystemExit(int(todo))


if __name__ == "__main__":
    main(sys.argv[1:])

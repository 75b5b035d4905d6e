"""`leadline`, and `python -m leadline_cli`."""

from __future__ import annotations

import errno
import signal
import sys
from importlib import import_module
from typing import Final

_EXIT_UNKNOWN: Final = 3
_LOOK: Final = "raise the limit, and look what was done before you repeat it"


def main() -> None:
    """Run the command; it may be interrupted while its modules are imported."""
    try:
        import_module("leadline_cli.main").app()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except OSError as problem:
        if problem.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        sys.stderr.write(f"error: {problem.strerror} (`ulimit -n`): {_LOOK}\n")
        sys.exit(_EXIT_UNKNOWN)


if __name__ == "__main__":
    main()

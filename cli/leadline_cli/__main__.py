"""`leadline`, and `python -m leadline_cli`."""

from __future__ import annotations

import signal
import sys
from importlib import import_module


def main() -> None:
    """Run the command; it may be interrupted while its modules are imported."""
    try:
        import_module("leadline_cli.main").app()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()

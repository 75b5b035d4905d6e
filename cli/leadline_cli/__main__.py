"""`leadline`, and `python -m leadline_cli`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

_EXIT_INTERRUPTED: Final = 130


def main() -> None:
    """Run the command; it may be interrupted while its modules are imported."""
    try:
        import_module("leadline_cli.main").app()
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()

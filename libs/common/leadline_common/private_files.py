"""Files that a service creates are for its own user only: they hold records, keys and history."""

from __future__ import annotations

import os
from typing import Final

_OWNER_ONLY: Final = 0o077


def keep_files_private() -> None:
    """Let nobody else read the files and directories that this process creates from now on."""
    os.umask(_OWNER_ONLY)

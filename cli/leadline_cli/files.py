"""Looking at paths that may be unusable, and replacing files as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def exists(path: Path) -> bool:
    """Tell whether a path can be seen to exist.

    It is not if its name is too long, or if it is in a directory that this user may not enter.
    """
    return os.path.exists(path)  # noqa: PTH110 - Path.exists would raise


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` for a draft, which replaces the file at the end of the block.

    If the block raises, the draft is removed and the file stays as it is.
    """
    draft = path.with_name(f".{path.name}.new")
    try:
        yield draft
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise

"""Directories that are set aside: strays, and replicas that are being deleted.

``<topic>-<partition>.<topic id>[.<number>]-stray``, or ``-delete``. The file system limits a name
to 255 bytes, and a topic's name may have 249. So a long topic name is cut short. Topic id and
partition, which identify the replica, are never.
"""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Final

from leadline_broker.domain.state import ReplicaKey

STRAY_SUFFIX: Final = "-stray"
DELETE_SUFFIX: Final = "-delete"

_NAME_MAX: Final = 255
_KEY: Final = re.compile(rf"-(\d+)\.([^.]+)(?:\.\d+)?{STRAY_SUFFIX}$")


def free_name(path: Path, topic_id: str, suffix: str) -> Path:
    """Return a path that does not exist yet, for the directory of a replica of this topic id."""
    topic, dash, partition = path.name.rpartition("-")
    for number in itertools.count(1):
        tail = f"{dash}{partition}.{topic_id}{f'.{number}' if number > 1 else ''}"
        # Long enough for either suffix, because a stray is renamed again to be deleted.
        room = _NAME_MAX - len(os.fsencode(tail + DELETE_SUFFIX))
        kept = os.fsencode(topic)[: max(0, room)].decode(errors="ignore")
        target = path.with_name(kept + tail + suffix)
        if not target.exists():
            break
    return target


def stray_key(name: str) -> ReplicaKey | None:
    """Return topic id and partition of a stray's directory; None for other names."""
    found = _KEY.search(name)
    return (found[2], int(found[1])) if found else None


def latest_stray(root: Path, key: ReplicaKey) -> Path | None:
    """Return the directory of a replica that was made stray last, None if there is none.

    Raises:
        FileNotFoundError: its grace period ended just now.

    """
    strays = [path for path in root.glob(f"*{STRAY_SUFFIX}") if stray_key(path.name) == key]
    return max(strays, key=lambda path: path.stat().st_mtime_ns, default=None)


def removed_as_empty(path: Path) -> bool:
    """Remove a directory without files; return whether it was one.

    A power cut leaves one if another log's fsync of the root came before the first fsync of this
    one. Nothing in it was ever durable, so there is nothing to set aside.
    """
    try:
        path.rmdir()
    except OSError:
        return False
    return True

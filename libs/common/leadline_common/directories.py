"""Which log directory a membership belongs to (rule R17; KIP-858, KIP-966). Pure: no IO.

A log directory has an id, made with it. The first directory of a broker has the directory epoch 1,
and every other one gets the next number when the broker first registers with it. A member of an ISR
counts only on the directory with the epoch that its membership recorded: another directory does not
hold the records that this member acknowledged.

A partition state records only the epochs that are not 1, so that it stays as small as before where
no directory was ever replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

FIRST_DIRECTORY_EPOCH: Final = 1

DirectoryEpochs: TypeAlias = Mapping[int, int]
"""Directory epochs by broker, without those that are `FIRST_DIRECTORY_EPOCH`."""

MAX_DIRECTORIES: Final = 16
"""How many directories of a broker are remembered; an older one counts as new if it returns."""


def membership_epoch(recorded: DirectoryEpochs | None, broker: int) -> int:
    """Return the directory epoch to which the membership of a broker is bound."""
    return FIRST_DIRECTORY_EPOCH if not recorded else recorded.get(broker, FIRST_DIRECTORY_EPOCH)


def kept_epochs(
    recorded: DirectoryEpochs | None, members: Iterable[int], joined: Mapping[int, int]
) -> DirectoryEpochs | None:
    """Return what to record for `members`: the epochs in `joined`, else those recorded before."""
    if not recorded and all(epoch == FIRST_DIRECTORY_EPOCH for epoch in joined.values()):
        return None
    epochs = {b: joined.get(b) or membership_epoch(recorded, b) for b in members}
    return {b: e for b, e in sorted(epochs.items()) if e != FIRST_DIRECTORY_EPOCH} or None


def next_directories(known: Mapping[str, int], present: Iterable[str]) -> dict[str, int]:
    """Return the epochs of a broker's directories, after it has registered with `present`.

    A known directory keeps its epoch, so that one that returns is recognized. Epochs are never
    used twice, because the newest directories are remembered.
    """
    epochs = dict(known)
    ids = list(dict.fromkeys(present))
    for directory in ids:
        if directory not in epochs:
            epochs[directory] = max(epochs.values(), default=0) + 1
    by_age = sorted(epochs.items(), key=lambda item: item[1], reverse=True)
    return {
        directory: epoch
        for place, (directory, epoch) in enumerate(by_age)
        if place < MAX_DIRECTORIES or directory in ids
    }

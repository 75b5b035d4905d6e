"""What a restored partition begins with, from what the logs of its replicas hold. Pure: no IO.

The ISR in a backup is no ground for an election: a replica that was in it may have left since, and
lack records that were acknowledged later. The logs themselves tell. A record is acknowledged once
all of an ISR has it, and a clean leader comes from the ISR before. So the log with the highest
(epoch of its last batch, end offset) of all replicas has every acknowledged record, unless an
unclean election has lost it before. That holds only if no replica's log is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from leadline_client.wire import NO_LEADER
from leadline_common.directories import kept_epochs
from leadline_common.znode_json import MAX_EPOCH
from leadline_common.znodes import PartitionState

EPOCH_MARGIN: Final = 1_000_000
"""Added to epochs: more elections than can have been since a backup without leaving a record."""


class NotRecoverable(ValueError):
    """The logs do not tell who may lead a partition; nothing was changed."""


class LogEnd(msgspec.Struct, frozen=True, order=True):
    """How far one log reaches; -1 is the epoch of an empty log. They compare as logs do."""

    last_epoch: int
    end_offset: int


class FoundLog(msgspec.Struct, frozen=True):
    """A replica's log, and the directory epoch of its broker's log directory (rule R17)."""

    end: LogEnd
    directory_epoch: int


def longest_log(logs: Mapping[int, FoundLog], preferred: Sequence[int]) -> int:
    """Return the broker whose log has every committed record; of several, the first `preferred`.

    A log whose records have all expired tells no epoch. But they were committed, so a log that ends
    before it is not complete. `logs` must be those of all replicas, and not empty.
    """
    expired = (found.end.end_offset for found in logs.values() if found.end.last_epoch < 0)
    least = max(expired, default=0)
    complete = {b: found.end for b, found in logs.items() if found.end.end_offset >= least}
    last = max(complete.values())
    order = [*(broker for broker in preferred if broker in complete), *sorted(complete)]
    return next(broker for broker in order if complete[broker] == last)


def recovered_state(
    before: PartitionState | None, leader: int, logs: Mapping[int, FoundLog], first_epoch: int = 0
) -> PartitionState:
    """Return the state of a partition to restore: no leader yet, and `leader` alone in sync.

    The other replicas join the ISR again by replication. The state begins above `first_epoch` and
    all epochs in the `logs`.

    Raises:
        NotRecoverable: the epochs are used up.

    """
    before = before or PartitionState(NO_LEADER, 0, (), 0)
    in_logs = max(found.end.last_epoch for found in logs.values())
    return msgspec.structs.replace(
        before,
        leader=NO_LEADER,
        leader_epoch=raised(max(before.leader_epoch, first_epoch, in_logs)),
        isr=(leader,),
        eligible=(),
        directory_epochs=kept_epochs(None, (leader,), {leader: logs[leader].directory_epoch}),
    )


def raised(epoch: int) -> int:
    """Return an epoch above all that there may have been since `epoch` was read.

    Raises:
        NotRecoverable: there is none.

    """
    if epoch + EPOCH_MARGIN > MAX_EPOCH:
        raise NotRecoverable(f"epoch {epoch} cannot be raised by {EPOCH_MARGIN}")
    return epoch + EPOCH_MARGIN

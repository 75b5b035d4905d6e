"""What a restored partition begins with, from what the logs of its replicas hold. Pure: no IO.

The ISR in a backup is no ground for an election: a replica that was in it may have left since, and
lack records that were acknowledged later. The logs themselves tell. A record is acknowledged once
all of an ISR has it, and a clean leader comes from the ISR before. So the log with the highest
(epoch of its last batch, end offset) of all replicas has every acknowledged record, unless an
unclean election has lost it before. That holds only if every replica is counted.
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


def recovered_state(
    before: PartitionState, replicas: Sequence[int], logs: Mapping[int, FoundLog]
) -> PartitionState:
    """Return the state of a partition to restore: without a leader, the longest log alone in sync.

    The other replicas join the ISR again by replication. `logs` are those that were found, by
    broker, also of brokers that are not among the `replicas`.

    Raises:
        NotRecoverable: a replica has no log in `logs`; or the longest log is of a broker that was
            assigned after the backup; or the epochs are used up.

    """
    missing = [broker for broker in replicas if broker not in logs]
    if missing or not replicas:
        raise NotRecoverable(f"the logs of brokers {missing} are not there to compare")
    last = max(found.end for found in logs.values())
    longest = next((broker for broker in replicas if logs[broker].end == last), None)
    if longest is None:
        raise NotRecoverable("the longest log is of a broker that was assigned after the backup")
    epoch = raised(max(before.leader_epoch, last.last_epoch))
    directories = kept_epochs(None, (longest,), {longest: logs[longest].directory_epoch})
    return msgspec.structs.replace(
        before,
        leader=NO_LEADER,
        leader_epoch=epoch,
        isr=(longest,),
        eligible=(),
        directory_epochs=directories,
    )


def raised(epoch: int) -> int:
    """Return an epoch above all that there may have been since `epoch` was read.

    Raises:
        NotRecoverable: there is none.

    """
    if epoch + EPOCH_MARGIN > MAX_EPOCH:
        raise NotRecoverable(f"epoch {epoch} cannot be raised by {EPOCH_MARGIN}")
    return epoch + EPOCH_MARGIN

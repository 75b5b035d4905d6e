"""Controller epochs, as ZooKeeper's history has them (I12)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from leadline_common.znodes import AuditEntry
from leadline_controller.domain.history import CLUSTER_RESTORED, CONTROLLER_ELECTED

_CONTROLLER = re.compile(r"controller-(\d+)")


def term_problems(audit: Sequence[AuditEntry], controller_epoch: int) -> list[str]:
    """Say where controller epochs do not rise by one, or where an older controller wrote.

    `audit` are all entries in the order of their transactions. Each election raises the epoch
    in the transaction that has its entry, so `controller_epoch`, the epoch that ZooKeeper has
    now, must be the number of elections. A controller writes under its own name what nobody
    requested: between its own election and the next one. A controller that was restarted
    is not told from its predecessor of the same name.
    """
    found = []
    elected, elections = "", 0
    for number, entry in enumerate(audit):
        if entry.kind == CONTROLLER_ELECTED:
            elected, elections = entry.actor, elections + 1
        elif _CONTROLLER.fullmatch(entry.actor) and entry.actor != elected:
            found.append(
                f"I12: {entry.actor} wrote entry {number} ({entry.kind}) in epoch {elections} "
                f"of {elected or 'nobody'}"
            )
    restored = any(entry.kind == CLUSTER_RESTORED for entry in audit)
    if elections != controller_epoch and not restored:
        found.append(f"I12: {elections} elections were audited, the epoch is {controller_epoch}")
    return found

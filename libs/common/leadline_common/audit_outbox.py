"""Writing into the audit outbox in ZooKeeper: an entry goes with the change that it records."""

from __future__ import annotations

from leadline_common.zk.ops import CreateOp
from leadline_common.znodes import AUDIT_ENTRY_PREFIX, AuditEntry, encode_audit


def audit_op(entry: AuditEntry) -> CreateOp:
    """Return the operation that writes an entry, for the multi of its change."""
    return CreateOp(AUDIT_ENTRY_PREFIX, encode_audit(entry), sequence=True)

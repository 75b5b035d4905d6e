"""The protocol rules that can be switched off, for tests only.

Each switch removes one rule of the replication protocol; the simulator must
then find the loss that the rule prevents. Services always run with `ALL_RULES`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Which protocol rules are in force, named as in ARCHITECTURE.md."""

    r1_identity: bool = True
    """Requests of another leader epoch are refused."""
    r2_reconcile: bool = True
    """Logs are reconciled by leader epoch before a fetch, never truncated to the high watermark."""
    r3_correlated: bool = True
    """Responses are used only if they match the replica's current state."""
    r4_durable_ends: bool = True
    """Only fsynced ends count, including the leader's own."""
    r5_proposed_isr: bool = True
    """The high watermark waits for proposed ISR members and freezes below min.insync.replicas."""
    r6_joiner: bool = True
    """A joiner must have reached the leader's epoch start, in an unchanged incarnation."""
    r7_ambiguous: bool = True
    """An ISR write of unknown outcome is resolved by reading the state again."""
    r8_level_triggered: bool = True
    """The controller sends again what was not acknowledged."""
    r9_incarnation: bool = True
    """A restarted broker counts as failed: it takes a role only from a grant of a new epoch."""
    r13_reassignment: bool = True
    """A reassignment removes replicas only once those that it adds are in sync."""
    r17_directories: bool = True
    """A membership in the ISR counts only on the log directory that it was gained with."""


ALL_RULES = Rules()

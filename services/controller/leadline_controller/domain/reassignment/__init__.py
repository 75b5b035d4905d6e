"""Reassignment of partitions: steps, batches, and the writes of each step (KIP-435)."""

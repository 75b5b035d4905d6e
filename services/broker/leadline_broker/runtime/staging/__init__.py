"""Staged batches and their exactly-once publication."""

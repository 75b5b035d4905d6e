"""Quotas: how many requests, bytes and changes of partitions a user may have in a second."""

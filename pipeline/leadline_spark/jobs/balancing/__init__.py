"""Balancing of brokers (`jobs.balance`): measured loads, and a greedy proposal."""

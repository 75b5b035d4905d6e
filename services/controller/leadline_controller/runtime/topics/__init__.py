"""Handlers for topics, partitions, brokers, elections and settings."""

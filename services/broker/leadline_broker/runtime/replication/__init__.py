"""Replicas: roles, fetching, serving followers, ISR changes, fsync, retention, shutdown."""

"""Replicas: roles, fetching from leaders, serving followers, ISR changes, fsync, retention."""

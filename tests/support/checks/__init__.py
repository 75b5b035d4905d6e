"""Checks of what a cluster did: histories, invariants, replica files."""

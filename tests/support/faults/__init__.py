"""Fault scenarios: load, faults that are seen to happen, and what must hold afterwards."""

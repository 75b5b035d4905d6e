"""Decisions: state and event in, new state and effects out; no IO, clock or randomness."""

"""Decisions of the controller: pure functions of state; no IO, clock or randomness."""

"""Reassignments, tasks, drains, plans and self-healing."""

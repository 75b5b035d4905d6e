"""Migrations of the history."""

"""Leadline's tests."""

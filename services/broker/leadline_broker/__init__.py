"""Leadline's broker service."""

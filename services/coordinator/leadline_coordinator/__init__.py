"""Leadline's coordinator service."""

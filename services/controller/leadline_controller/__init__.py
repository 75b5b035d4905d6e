"""Leadline's controller service."""

"""Leadline's client library: wire types, errors, and HTTP clients."""

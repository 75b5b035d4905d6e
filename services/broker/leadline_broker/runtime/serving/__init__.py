"""Requests of clients: produce, fetch, offsets, producer ids, load."""

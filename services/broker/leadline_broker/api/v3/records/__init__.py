"""Producing records by the v3 API: one by one, as a stream, and in batches."""

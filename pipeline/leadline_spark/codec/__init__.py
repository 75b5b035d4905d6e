"""Stored record batches in Spark's columns, by the codec of the client library."""

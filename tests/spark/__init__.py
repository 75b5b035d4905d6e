"""Spark on a live cluster: one session and one cluster for the whole directory."""

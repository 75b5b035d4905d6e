"""Leadline beside Apache Kafka: the same work, on the same machine, in turn. See `__main__.py`."""

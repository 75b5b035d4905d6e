"""Implementations of the protocols in `runtime/ports.py`: ZooKeeper, HTTP and the database."""

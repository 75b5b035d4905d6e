"""The clients: each does its work in a process of its own, which measures it (`worker.py`)."""

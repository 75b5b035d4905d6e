"""Batch and streaming writes: partition buffers, leaders, staging and publishing."""

"""Batch and streaming reads: bounds, planning, offsets, and the tasks that fetch."""

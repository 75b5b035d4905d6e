"""Queues and single writers that carry the decisions out."""

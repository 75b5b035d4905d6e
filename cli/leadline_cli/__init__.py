"""The leadline command."""

"""A real browser for tests."""

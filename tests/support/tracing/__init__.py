"""A collector of spans for tests."""

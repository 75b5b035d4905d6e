"""The bodies of the v3 API."""

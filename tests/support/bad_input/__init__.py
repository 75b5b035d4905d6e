"""Tables of requests that must be refused."""

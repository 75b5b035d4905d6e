"""The HTTP API: parse requests, call the runtime, build responses."""

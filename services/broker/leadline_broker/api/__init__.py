"""HTTP: parse requests, call the runtime, encode responses."""

"""IO behind the Protocols of runtime/ports.py."""

"""What tests of the v3 API share: its operations and types, and a client of another language."""

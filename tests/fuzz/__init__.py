"""Coverage-guided fuzzing of what decodes bytes from elsewhere: `python -m tests.fuzz --help`."""

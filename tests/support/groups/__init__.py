"""Consumer groups of real processes, and what their logs must show."""

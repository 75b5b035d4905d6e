"""Real processes and in-process services that tests start and stop."""

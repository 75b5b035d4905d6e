"""Programs of the container image."""

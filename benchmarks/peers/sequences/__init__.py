"""What is done to both systems, one module for each kind of work."""

"""Running the commands and programs that the documentation shows."""

"""APIs that more than one service serves, declared once."""

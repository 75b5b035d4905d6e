"""One page that shows a person what happened in a fault scenario."""

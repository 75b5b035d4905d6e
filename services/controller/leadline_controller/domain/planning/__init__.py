"""Plans for balance, expansion and drain, and replacements of failed replicas."""

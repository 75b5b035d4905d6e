"""Where replicas should be: plans for balance, expansion and drain, and replacements."""

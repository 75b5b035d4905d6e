"""The cluster itself as tables, its past and its present: the option `table`."""

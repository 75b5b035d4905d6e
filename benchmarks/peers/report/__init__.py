"""From samples to the documents of `benchmarks/results`."""

"""The parts of `benchmarks/peers` that need no cluster."""

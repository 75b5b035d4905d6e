"""How partitions get from the replicas that they have to those that they should have (seed 5)."""

"""The history of the cluster, in a database of each controller."""

"""Copies of what a cluster cannot rebuild from its logs: ZooKeeper's nodes and the histories."""

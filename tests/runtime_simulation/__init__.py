"""Simulates the services' own runtime: virtual time, network, disks and ZooKeeper around it."""

"""The two systems: three brokers each on one ZooKeeper, behind one interface."""

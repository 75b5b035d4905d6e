"""Evening out the load of brokers: what is measured, and a greedy proposal (`jobs.balance`)."""

"""The running broker: queues and single writers that execute what the domain decides."""

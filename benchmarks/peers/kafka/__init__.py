"""Where Kafka's files come from, and how its brokers are run."""

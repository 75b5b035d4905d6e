"""The audit history: replication of the outbox into SQL, and its retention."""

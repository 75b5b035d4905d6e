"""The broker's logs on disk: partitions, segments, recovery, and the log directory."""

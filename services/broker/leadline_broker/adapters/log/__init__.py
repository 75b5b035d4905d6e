"""The broker's log on disk: partitions of segments, recovery, and the root directory."""

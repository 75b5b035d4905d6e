"""Which member of a consumer group reads which partitions: range, round robin, sticky."""

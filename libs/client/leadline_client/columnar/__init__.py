"""Record batches of Kafka's format v2, from and to Arrow; needs pyarrow (extra `arrow`)."""

"""What producers and consumers ask of this broker: append, fetch, offsets, producer ids, load."""

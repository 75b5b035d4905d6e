"""Topics as Parquet files: their names, manifests, storage, and the sink that writes them."""

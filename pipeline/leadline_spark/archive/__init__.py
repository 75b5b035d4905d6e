"""Archives of topics as Parquet files: names, manifests, storage, and the sink."""

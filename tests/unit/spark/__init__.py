"""The Spark part without Spark: offsets, plans, the codec, names of files."""

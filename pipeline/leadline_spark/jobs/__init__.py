"""Jobs for `spark-submit` and `leadline spark`. Each module has a `main(argv)`."""

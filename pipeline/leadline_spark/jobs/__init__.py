"""Jobs for `spark-submit` and `leadline spark`: each module here has a `main(argv)`."""

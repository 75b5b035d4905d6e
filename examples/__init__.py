"""One program for each use of Leadline with Spark; README.md says how to run them."""

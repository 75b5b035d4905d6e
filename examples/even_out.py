"""Propose how to even out the load, or do it: python examples/even_out.py [--apply]."""

import os
import sys

from leadline_spark.jobs import balance


def main(*words: str) -> int:
    """Measure twice, five seconds apart, and copy ten replicas at most."""
    bootstrap = os.environ["LEADLINE_BOOTSTRAP"]
    limits = ("--samples", "2", "--every", "5", "--max-moves", "10")
    return balance.main(["--bootstrap", bootstrap, *limits, *words])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

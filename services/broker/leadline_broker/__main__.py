"""`python -m leadline_broker --set broker.id=1 …`: one broker in the foreground."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from leadline_broker.main import run
from leadline_common.settings import BrokerSettings, load_settings


def main() -> None:
    """Run the broker that the arguments describe."""
    parser = argparse.ArgumentParser(prog="python -m leadline_broker")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--config", type=Path)
    arguments = parser.parse_args()
    flags = dict(pair.split("=", 1) for pair in arguments.set)
    run(load_settings(BrokerSettings, flags=flags, environment=os.environ, config=arguments.config))


if __name__ == "__main__":
    main()

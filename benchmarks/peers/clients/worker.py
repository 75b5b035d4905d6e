"""Does one piece of work with one client, and prints what it took as JSON.

Run by `processes.py` in the folder of the benchmarks, by the Python of the environment which has
the client: this module and what it imports at its top need the standard library alone.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib
import json
import resource
import sys
from typing import Final

from peers.clients.work import Driver, Stopwatch, Work

DRIVERS: Final = {
    "leadline": "peers.clients.leadline_driver",
    "aiokafka": "peers.clients.aiokafka_driver",
    "confluent": "peers.clients.confluent_driver",
}


def main() -> None:
    """Do the work that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=DRIVERS)
    parser.add_argument("bootstrap")
    parser.add_argument("task")
    parser.add_argument("work", type=json.loads)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    driver: Driver = importlib.import_module(DRIVERS[arguments.client]).connect(arguments.bootstrap)
    watch = Stopwatch()
    asyncio.run(getattr(driver, arguments.task)(Work(**arguments.work), watch))
    json.dump(dataclasses.asdict(watch), sys.stdout)


if __name__ == "__main__":
    main()

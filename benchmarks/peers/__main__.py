"""Leadline beside Apache Kafka: the same work on the same machine, with one ZooKeeper.

Run `make bench-peers`, or `python benchmarks/peers [--quick] [--only produce,latency]`. Kafka comes
by Maven from the registry that this machine's settings name. Where that has none, a line says so,
and nothing is measured. Each system has three brokers, and topics of three replicas, two of which
must acknowledge. On the data path both are up, and clients have their turns in each round: Kafka's
(aiokafka, confluent-kafka), then Leadline's. What changes or breaks a cluster gets a fresh one for
each round, the systems in turn. `sequences/` has a module for each kind of work; both systems
implement `systems/system.py`, all clients `clients/work.py`.

The results are a JSON document and a page in `benchmarks/results`, and one of all runs over time.
There is no goal: the ratios say where Leadline stands.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers.command import main

if __name__ == "__main__":
    sys.exit(main())

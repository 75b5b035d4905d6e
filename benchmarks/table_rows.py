"""Read and append tables with the Python client, as ratios to its consumer and its producer.

Run ``python benchmarks/table_rows.py [--rows 300000] [--rounds 3] [--alike]``. It starts a cluster
with three brokers. The records have keys of 16 bytes and values of text, together 100 bytes or
1 KB, in six partitions with three replicas. The sizes of values vary by a fifth, or are `alike`.
In each round `produce_table` and the blocking producer append the same rows, and `read_table` and a
reader of records read them; the median of the rounds counts. The reader and the producer get a part
of the rows, as they take longer. The time to decode alone is measured, too, from memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa

from leadline_cli.cluster_layout import ClusterOptions
from leadline_cli.supervisor import Supervisor
from leadline_client import (
    AsyncClient,
    Client,
    NewTopic,
    PartitionReader,
    Producer,
    produce_table,
    read_table,
)
from leadline_client.columnar.decode import decode
from leadline_client.columnar.layout import Layout
from leadline_client.reading import FetchPosition, ReadLimits
from leadline_client.table_reading import SCHEMA

SIZES = (100, 1_024)
KEY_BYTES = 16
PARTITIONS = 6
REPLICAS = 3
PART = 10
MILLION = 1e6


def rows_of(size: int, count: int, *, alike: bool) -> pa.Table:
    """Return keys, and values of letters, as text would be."""
    random = Random(size)
    pool = bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz    ", k=1 << 20))
    mean = size - KEY_BYTES
    spread = 0 if alike else mean // 5
    values = []
    for _ in range(count):
        length = mean + random.randint(-spread, spread)
        begin = random.randrange(len(pool) - length)
        values.append(pool[begin : begin + length])
    keys = [b"%0*d" % (KEY_BYTES, number) for number in range(count)]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


class Bench:
    """One topic, what is measured with it, and the rates of each measurement (rows a second)."""

    def __init__(self, bootstrap: str, topic: str, rows: pa.Table) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rows = rows
        self._part = rows.slice(0, rows.num_rows // PART)
        self.rates: dict[str, list[float]] = {}

    def round(self) -> None:
        """Measure everything once, in turn."""
        with Client(self._bootstrap) as client:
            ends = {n: client.offsets(self._topic, n).high_watermark for n in range(PARTITIONS)}
            self._measure("produce_table", lambda: self._append_table(self._rows))
            self._measure("producer", lambda: self._append_records(self._part))
            self._measure("read_table", lambda: self._read_table(client, ends))
            self._measure("reader of records", lambda: self._read_records(client, ends))
            self._measure_decoding(client)

    def _measure(self, name: str, work: Callable[[], int]) -> None:
        began = time.perf_counter()
        count = work()
        self._note(name, count, time.perf_counter() - began)

    def _note(self, name: str, count: int, seconds: float) -> None:
        self.rates.setdefault(name, []).append(count / seconds)

    def _append_table(self, rows: pa.Table) -> int:
        with Producer(self._bootstrap) as producer:
            return produce_table(producer, self._topic, rows, key="key", value="value")

    def _append_records(self, rows: pa.Table) -> int:
        keys, values = (column.to_pylist() for column in rows.columns)
        with Producer(self._bootstrap) as producer:
            for key, value in zip(keys, values, strict=True):
                producer.send(self._topic, value, key=key)
            producer.flush()
        return len(keys)

    def _read_table(self, client: Client, starts: dict[int, int]) -> int:
        table = read_table(client, self._topic, start=starts)
        assert table.num_rows == self._rows.num_rows + self._part.num_rows
        return int(table.num_rows)

    def _read_records(self, client: Client, starts: dict[int, int]) -> int:
        end = client.offsets(self._topic, 0).high_watermark
        limits = ReadLimits(max_bytes=4 << 20)
        reader = PartitionReader(client, self._topic, 0, starts[0], limits=limits)
        return sum(1 for _ in reader.read_to(end))

    def _measure_decoding(self, client: Client) -> None:
        position = FetchPosition(client.core, self._topic, 0, "earliest")
        end = client.offsets(self._topic, 0).high_watermark
        fetched = []
        while client.run(position.locate()) < end:
            fetched.append(client.run(position.read_stored(ReadLimits(max_bytes=4 << 20))).batches)
        layout = Layout(SCHEMA, self._topic, 0)
        began = time.perf_counter(), time.process_time()
        count = sum(one.num_rows for body in fetched for one in decode(body, 0, end, layout))
        took = time.perf_counter() - began[0], time.process_time() - began[1]
        self._note("decode alone", count, took[0])
        self._note("decode alone, processor time", count, took[1])


BASES = {"produce_table": "producer", "read_table": "reader of records"}


def report(size: int, rates: dict[str, list[float]]) -> None:
    """Print the medians, and their ratios."""
    found = {name: statistics.median(each) for name, each in rates.items()}
    for name, rate in found.items():
        base = BASES.get(name)
        ratio = f"  {rate / found[base]:5.1f} x {base}" if base else ""
        print(
            f"{size:5} B  {name:28} {rate / MILLION:6.3f} M rows/s  "
            f"{rate * size / MILLION:6.1f} MB/s{ratio}"
        )


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=300_000, help="rows of 100 bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alike", action="store_true", help="all records have one size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        layout = ClusterOptions(Path(directory), brokers=3, controllers=1, coordinators=0)
        async with Supervisor(layout) as cluster:
            bootstrap = cluster.layout.brokers[0].url
            for size in SIZES:
                topic = f"rows-{size}"
                async with AsyncClient(bootstrap) as client:
                    await client.create_topic(NewTopic(topic, PARTITIONS, REPLICAS))
                count = options.rows * SIZES[0] // size
                bench = Bench(bootstrap, topic, rows_of(size, count, alike=options.alike))
                for _ in range(options.rounds):
                    await asyncio.to_thread(bench.round)
                report(size, bench.rates)
    print("load average", " ".join(f"{one:.1f}" for one in os.getloadavg()))


if __name__ == "__main__":
    asyncio.run(main())

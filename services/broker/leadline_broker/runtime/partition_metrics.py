"""The metrics of a broker's replicas: of each partition and topic up to a limit, and in total.

Topics and partitions are as many as clients create. Beyond the limits they have no labels of their
own; they still count in the metrics of their topic and in the totals, and a metric has the number
that was left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from leadline_broker.runtime.replication.partition import Partition
from leadline_common.metrics import Family, Rows, ScrapedMetrics

_Labels = Mapping[str, str]


class Limits(NamedTuple):
    """The most partitions and the most topics with metrics of their own."""

    partitions: int
    topics: int


class ReplicaSource(NamedTuple):
    """The replicas of a broker, its log directory, and the total and the free bytes of its disk."""

    replicas: Callable[[], Sequence[Partition]]
    directory: Path
    space: Callable[[], tuple[int, int]]


class TopicTraffic:
    """What clients have produced to a topic here and fetched from it."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = self.bytes_in = self.records_out = self.bytes_out = 0


class _Replica(NamedTuple):
    """One replica as it was at the scrape; `isr` is None except on the leader."""

    topic: str
    partition: int
    size: int
    start: int
    end: int
    high_watermark: int
    isr: int | None
    is_under_replicated: bool
    is_under_min_isr: bool

    @classmethod
    def of(cls, partition: Partition) -> _Replica:
        state, log = partition.replica.state, partition.log
        leads = partition.replica.leadership is not None
        isr = len(state.isr)
        return cls(
            partition.topic,
            partition.partition,
            log.size_bytes,
            log.log_start_offset,
            log.log_end_offset,
            state.high_watermark,
            isr if leads else None,
            leads and isr < len(state.assigned),
            leads and isr < state.isr_floor,
        )


class ReplicaMetrics(ScrapedMetrics):
    """The metrics of all replicas. They are computed in the thread of the scrape.

    Until `watch` is called, there are no replicas and so no samples.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self._limits = limits
        self._source: ReplicaSource | None = None
        self._sampled: Sequence[Partition] = ()
        self._traffic: defaultdict[str, TopicTraffic] = defaultdict(TopicTraffic)
        self._declare_totals()
        self._declare_topics()
        self._declare_partitions()

    def _declare_totals(self) -> None:
        gauge = self.family
        self._totals: dict[Family, Callable[[Sequence[_Replica]], float]] = {
            gauge("gauge", "replicas", "Replicas on this broker."): len,
            gauge("gauge", "leaders", "Partitions that this broker leads."): _led,
            gauge(
                "gauge", "under_replicated", "Led partitions whose ISR lacks an assigned replica."
            ): _under_replicated,
            gauge(
                "gauge",
                "under_min_isr",
                "Led partitions whose ISR is smaller than min.insync.replicas: they refuse "
                "acks=all.",
            ): lambda rows: sum(row.is_under_min_isr for row in rows),
            gauge(
                "gauge",
                "uncommitted_records_max",
                "Largest difference between log end and high watermark.",
            ): lambda rows: max(
                (row.end - row.high_watermark for row in rows if row.isr is not None), default=0
            ),
        }
        self._disk = [
            gauge("gauge", f"log_dir_{name}_bytes", meaning, ("log_dir",))
            for name, meaning in (
                ("size", "Bytes of all logs in the log directory."),
                ("capacity", "Size of the disk that has the log directory."),
                ("free", "Free space on the disk that has the log directory."),
            )
        ]
        self._omitted = gauge(
            "gauge",
            "metrics_omitted",
            "Partitions and topics of this broker that have no metrics of their own, because of "
            "`metrics.partitions.max` and `metrics.topics.max`.",
            ("kind",),
        )

    def _declare_topics(self) -> None:
        def add(name: str, meaning: str) -> Family:
            return self.family("gauge", f"topic_{name}", meaning, ("topic",))

        self._topics: dict[Family, Callable[[Sequence[_Replica]], float]] = {
            add("log_size_bytes", "Bytes of a topic's logs on this broker."): _size,
            add("replicas", "Replicas of a topic on this broker."): len,
            add("leaders", "Partitions of a topic that this broker leads."): _led,
            add(
                "under_replicated_partitions",
                "Led partitions of a topic whose ISR lacks an assigned replica.",
            ): _under_replicated,
        }

        def count(name: str, meaning: str) -> Family:
            return self.family("counter", f"topic_{name}", meaning, ("topic",))

        self._flows: dict[Family, Callable[[TopicTraffic], int]] = {
            count("records_in", "Records appended to a topic as leader."): lambda t: t.records_in,
            count("bytes_in", "Bytes appended to a topic as leader."): lambda t: t.bytes_in,
            count(
                "records_out", "Records of a topic in the batches served to consumers."
            ): lambda t: t.records_out,
            count("bytes_out", "Bytes of a topic served to consumers."): lambda t: t.bytes_out,
        }

    def _declare_partitions(self) -> None:
        def add(name: str, meaning: str) -> Family:
            return self.family("gauge", f"partition_{name}", meaning, ("topic", "partition"))

        self._partitions: dict[Family, Callable[[_Replica], float | None]] = {
            add("log_size_bytes", "Bytes of the log of a replica."): lambda row: row.size,
            add("log_start_offset", "The first offset in the log."): lambda row: row.start,
            add("log_end_offset", "The offset of the next record (LEO)."): lambda row: row.end,
            add(
                "high_watermark_offset", "The first offset that is not known as committed here."
            ): lambda row: row.high_watermark,
            add("leader", "1 if this broker leads the partition."): (
                lambda row: row.isr is not None
            ),
            add("in_sync_replicas", "Members of the ISR; on the leader only."): lambda row: row.isr,
            add("under_replicated", "1 if the ISR lacks a replica; on the leader only."): (
                lambda row: None if row.isr is None else row.is_under_replicated
            ),
        }

    def watch(self, source: ReplicaSource) -> None:
        """Show the replicas of `source` from now on."""
        self._source = source

    def produced(self, topic: str, records: int, size: int) -> None:
        """Count an append."""
        traffic = self._traffic[topic]
        traffic.records_in += records
        traffic.bytes_in += size

    def fetched(self, topic: str, records: int, size: int) -> None:
        """Count a read."""
        traffic = self._traffic[topic]
        traffic.records_out += records
        traffic.bytes_out += size

    def sample(self) -> None:
        """Take the list of replicas, and forget the traffic of topics without one."""
        if self._source is None:
            return
        self._sampled = self._source.replicas()
        for topic in self._traffic.keys() - {partition.topic for partition in self._sampled}:
            del self._traffic[topic]

    def rows(self) -> Rows:
        """Return the metrics of the replicas; what they read may change while they do."""
        if self._source is None:
            return {}
        replicas = sorted(_Replica.of(partition) for partition in self._sampled)
        by_topic: dict[str, list[_Replica]] = {}
        for replica in replicas:
            by_topic.setdefault(replica.topic, []).append(replica)
        found = {family: _one(value(replicas)) for family, value in self._totals.items()}
        found |= self._disk_rows(replicas, self._source)
        found |= self._topic_rows(by_topic)
        found |= self._partition_rows(replicas[: self._limits.partitions])
        omitted = {
            "partitions": len(replicas) - self._limits.partitions,
            "topics": len(by_topic) - self._limits.topics,
        }
        found[self._omitted] = [({"kind": kind}, max(0, n)) for kind, n in omitted.items()]
        return found

    def _disk_rows(self, replicas: Sequence[_Replica], source: ReplicaSource) -> _Found:
        labels = {"log_dir": str(source.directory)}
        values: list[float] = [_size(replicas)]
        with suppress(OSError):  # A disk in trouble must not keep all other metrics back.
            values += source.space()
        shown = zip(self._disk, values, strict=False)
        return {family: [(labels, value)] for family, value in shown}

    def _topic_rows(self, by_topic: Mapping[str, Sequence[_Replica]]) -> _Found:
        shown = [({"topic": topic}, rows) for topic, rows in by_topic.items()]
        shown = shown[: self._limits.topics]
        found: _Found = {
            family: [(labels, value(rows)) for labels, rows in shown]
            for family, value in self._topics.items()
        }
        unused = TopicTraffic()
        traffic = [(labels, self._traffic.get(labels["topic"], unused)) for labels, _ in shown]
        for family, count in self._flows.items():
            found[family] = [(labels, count(counted)) for labels, counted in traffic]
        return found

    def _partition_rows(self, replicas: Iterable[_Replica]) -> _Found:
        shown = [({"topic": r.topic, "partition": str(r.partition)}, r) for r in replicas]
        return {
            family: [(labels, found) for labels, r in shown if (found := value(r)) is not None]
            for family, value in self._partitions.items()
        }


_Found = dict[Family, list[tuple[_Labels, float]]]


def _one(value: float) -> list[tuple[_Labels, float]]:
    return [({}, value)]


def _led(replicas: Sequence[_Replica]) -> int:
    return sum(replica.isr is not None for replica in replicas)


def _under_replicated(replicas: Sequence[_Replica]) -> int:
    return sum(replica.is_under_replicated for replica in replicas)


def _size(replicas: Sequence[_Replica]) -> int:
    return sum(replica.size for replica in replicas)

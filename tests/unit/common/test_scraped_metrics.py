"""Metrics that are computed at a scrape: their text, their threads, and who computes them."""

import asyncio
import threading

from prometheus_client.parser import text_string_to_metric_families

from leadline_common.http.health import Scraper
from leadline_common.metrics import Metrics, Rows, ScrapedMetrics

HOSTILE = 'a"} 1\nleadline_invented{x="\\'


class Topics(ScrapedMetrics):
    """One labelled gauge; remembers the threads that asked."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = self.family("gauge", "topic_size_bytes", "Bytes of a topic.", ("topic",))
        self.sampled_in: list[threading.Thread] = []
        self.computed_in: list[threading.Thread] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def sample(self) -> None:
        self.sampled_in.append(threading.current_thread())

    def rows(self) -> Rows:
        self.computed_in.append(threading.current_thread())
        self.go_on.wait(20)
        return {self.shown: [({"topic": HOSTILE}, 7)]}


def test_a_strangers_name_stays_within_its_label() -> None:
    metrics = Metrics(process=False)
    metrics.add(Topics())

    (family,) = text_string_to_metric_families(metrics.render().decode())

    assert [(s.name, s.labels, s.value) for s in family.samples] == [
        ("leadline_topic_size_bytes", {"topic": HOSTILE}, 7)
    ]


def test_a_metric_is_listed_as_it_is_served() -> None:
    metrics = Metrics(process=False)
    metrics.counter("elections", "Elections.", ("reason",))
    metrics.gauge("leaders", "Leaders.")
    metrics.add(Topics())

    assert [(one.name, one.kind, one.labels, one.unit) for one in metrics.families] == [
        ("leadline_elections_total", "counter", ("reason",), ""),
        ("leadline_leaders", "gauge", (), ""),
        ("leadline_topic_size_bytes", "gauge", ("topic",), "bytes"),
    ]


async def test_a_scrape_computes_in_a_thread_and_reads_state_on_the_loop() -> None:
    metrics, topics = Metrics(process=False), Topics()
    metrics.add(topics)
    topics.computed_in.clear()

    await Scraper(metrics).text()

    assert topics.sampled_in == [threading.current_thread()]
    assert threading.current_thread() not in topics.computed_in


async def test_scrapes_at_the_same_time_are_computed_once() -> None:
    metrics, topics = Metrics(process=False), Topics()
    metrics.add(topics)
    topics.computed_in.clear()
    topics.go_on.clear()
    scraper = Scraper(metrics)
    asked = [asyncio.create_task(scraper.text()) for _ in range(5)]
    await asyncio.sleep(0)
    asked[0].cancel()  # Whoever gives up takes nothing from the others.
    topics.go_on.set()

    texts = await asyncio.gather(*asked[1:])

    assert len(topics.computed_in) == 1
    assert len(set(texts)) == 1
    await scraper.text()
    assert len(topics.computed_in) == 2

"""Every program of examples/ runs against a live cluster, as its README says."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leadline_client.payloads import OutgoingRecord
from tests.spark.live import Live

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def words(live: Live, topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of nine words; the programs find its cluster."""
    monkeypatch.setenv("LEADLINE_BOOTSTRAP", live.bootstrap)
    live.topic(topic, partitions=2)
    live.send(topic, [OutgoingRecord(b"to be or", key=bytes([n])) for n in range(3)])
    return topic


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def test_every_example_is_in_the_table_and_in_a_test() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"}
    told = (EXAMPLES / "README.md").read_text()
    tested = Path(__file__).read_text()
    assert {name for name in programs if f"examples/{name}.py" in told} == programs
    assert {name for name in programs if f'"{name}"' in tested} == programs


def test_batch_and_stream(
    spark: SparkSession,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run(monkeypatch, "batch_read", words)
    rows = re.findall(r"^\|\s*[01]\s*\|\s*(\d+)\s*\|", capfd.readouterr().out, re.MULTILINE)
    assert sum(map(int, rows)) == 3
    run(monkeypatch, "stream_words", words, "--once")
    shown = re.findall(r"^\|\s*(\w+)\s*\|\s*(\d+)\s*\|", capfd.readouterr().out, re.MULTILINE)
    counts = {word: int(count) for word, count in shown}
    assert counts == {"to": 3, "be": 3, "or": 3}


def test_the_copy_has_each_record_once_however_often_it_runs(
    spark: SparkSession, live: Live, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = live.topic(f"{words[:80]}-copies", partitions=2)
    spark.createDataFrame([(1,)], "n int")  # Spark finds sinks for active sessions only
    for _ in range(2):
        run(monkeypatch, "copy_exactly_once", words, copies, str(tmp_path / "state"))
    for topic in (words, copies):
        read = spark.read.format("leadline").option("bootstrap", live.bootstrap)
        rows = read.option("subscribe", topic).load().select("partition", "key", "value")
        if topic == words:
            expected = sorted(rows.collect())
        else:
            assert sorted(rows.collect()) == expected
    assert len(expected) == 3


@pytest.mark.soak
@pytest.mark.parametrize("name", ["archive_topic", "cluster_report", "even_out"])
def test_jobs(
    spark: SparkSession,
    words: str,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = {"archive_topic": (words, str(tmp_path / "a")), "cluster_report": (str(tmp_path),)}
    if name == "even_out":
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, name)
        assert ended.value.code == 0
    else:
        run(monkeypatch, name, *arguments[name])
    shown = capfd.readouterr().out
    expected = {
        "archive_topic": "|count|",
        "cluster_report": "report.html",
        "even_out": "leads B/s",
    }
    assert expected[name] in shown

"""The benchmark of reading into Spark goes without Kafka, and compares runs of the same round."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import spark_read

from peers.kafka.jars import kafka_jars


def test_without_maven_kafka_is_left_out_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_read, "kafka_jars", partial(kafka_jars, tmp_path, "no-such-program"))

    connector, beside = spark_read.kafka_files(tmp_path / "kafka")

    with beside as kafka:
        assert (connector, kafka) == ("", None)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Kafka, by Spark: SKIPPED, not measured: there is no Maven")


def test_ratios_compare_runs_of_the_same_round(capsys: pytest.CaptureFixture[str]) -> None:
    turn = spark_read.Turn
    found = {
        spark_read.JSON: [turn(2.0, 4.0), turn(20.0, 4.0), turn(2.0, 4.0)],
        "all columns": [turn(1.0, 1.0), turn(10.0, 3.0), turn(1.0, 1.0)],
    }

    spark_read.report(100, 1_000_000, found)

    json, ours = capsys.readouterr().out.splitlines()
    assert "1.00 x JSON" in json
    assert "1.00 M rows/s" in ours
    assert "1.00 µs of CPU" in ours
    assert "2.00 x JSON" in ours
    assert "Kafka" not in ours

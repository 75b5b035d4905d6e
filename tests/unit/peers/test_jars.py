"""Kafka's jars: what Maven brings is checked, and a machine that has none is told in one line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from peers import command
from peers.kafka.jars import (
    HERE,
    SPARK_CONNECTOR,
    NotAvailable,
    WrongFiles,
    check,
    kafka_jars,
    listed,
    spark_connector_jars,
)

HASH_OF_A = (
    "1f40fc92da241694750979ee6cf582f2d5d7d28e18335de05abc54d0560e0f53"
    "02860c652bf08d560252aa5e74210546f369fbbbce8c12cfc7957b2652fe9a75"
)


def maven(folder: Path, script: str) -> str:
    """Return a program that stands for Maven."""
    program = folder / "mvn"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_the_list_pins_kafka_and_a_hash_for_each_file() -> None:
    hashes = listed((HERE / "jars.sha512").read_text())

    assert "kafka_2.13-3.9.1.jar" in hashes
    assert "slf4j-reload4j-1.7.36.jar" in hashes
    assert {len(digest) for digest in hashes.values()} == {128}


def test_the_list_for_spark_pins_what_spark_lacks() -> None:
    hashes = listed((SPARK_CONNECTOR / "jars.sha512").read_text())

    names = {name.rsplit("-", 1)[0] for name in hashes}
    assert names == {
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    }
    assert {len(digest) for digest in hashes.values()} == {128}


def test_files_as_listed_pass(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"a")

    check(tmp_path, {"a.jar": HASH_OF_A})


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ({"a.jar": b"b"}, "a.jar"),
        ({}, "a.jar"),
        ({"a.jar": b"a", "b.jar": b"b"}, "b.jar"),
    ],
    ids=["another", "missing", "not-listed"],
)
def test_other_files_are_refused(tmp_path: Path, files: dict[str, bytes], wrong: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    with pytest.raises(WrongFiles, match=f": {wrong}$"):
        check(tmp_path, {"a.jar": HASH_OF_A})


def test_wrong_files_of_a_registry_are_not_kept(tmp_path: Path) -> None:
    script = (
        'for a do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done; mkdir "$d"; : >"$d/x.jar"'
    )

    for _ in range(2):
        with pytest.raises(WrongFiles, match=r"x\.jar"):
            kafka_jars(tmp_path / "artifacts", maven(tmp_path, script))


def test_a_registry_without_kafka_is_told_in_one_line(tmp_path: Path) -> None:
    script = "echo '[ERROR] no such artifact'; echo '[ERROR] and much more'; exit 1"

    with pytest.raises(NotAvailable) as problem:
        kafka_jars(tmp_path / "artifacts", maven(tmp_path, script))
    assert str(problem.value) == "Maven did not bring Kafka: [ERROR] no such artifact"
    with pytest.raises(NotAvailable, match="Spark's Kafka source"):
        spark_connector_jars(tmp_path / "artifacts", maven(tmp_path, script))


def test_the_command_is_skipped_where_there_is_no_maven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "kafka_jars", partial(kafka_jars, tmp_path, "no-such-program"))

    assert command.main(["--quick", "--output", str(tmp_path / "results")]) == 0

    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("bench-peers: SKIPPED")
    assert "there is no Maven" in line
    assert not (tmp_path / "results").exists()


def test_wrong_files_are_an_error_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = maven(
        tmp_path, 'for a do case $a in -DoutputDirectory=*) mkdir "${a#*=}";; esac; done'
    )
    monkeypatch.setattr(command, "kafka_jars", partial(kafka_jars, tmp_path / "jars", program))

    assert command.main(["--quick", "--output", str(tmp_path / "results")]) == 1

    assert "kafka_2.13-3.9.1.jar" in capsys.readouterr().err

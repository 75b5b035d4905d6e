"""docs/getting-started.md as a newcomer walks it, command by command, in three terminals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.documentation.blocks import ROOT, Block, commands_of
from tests.support.documentation.reader import Reader, Spec, shown
from tests.support.documentation.shell import Running
from tests.support.services.up import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REPLACED = {"make setup": f"make -C {ROOT} setup", " --port-base 9000": ""}
"""The environment is there, and other clusters of this machine may have the fixed ports."""
SETTLE_S = 300.0


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A newcomer without Java, whose programs end with the test."""
    newcomer = Reader("docs/getting-started.md", tmp_path, Spec(replaced=REPLACED))
    newcomer.terminal.environment = {"JAVA_HOME": ""}
    yield newcomer
    while newcomer.background:
        newcomer.background.pop().interrupt()


def start(reader: Reader, block: Block) -> Running:
    """Run a block in a terminal of its own, whose last command keeps running."""
    *before, last = commands_of(block)
    for command in before:
        reader.run_command(command)
    running = Running(reader.terminal, last)
    reader.background.append(running)
    return running


def cluster_file(reader: Reader) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((reader.folder / "data/cluster.json").read_text())
    return document


def replicas(reader: Reader) -> list[list[int]]:
    """Return the replicas of each partition of the page's topic."""
    return [row["replicas"] for row in partitions(reader)]


def partitions(reader: Reader) -> list[dict[str, Any]]:
    """Return what the command shows of the page's topic."""
    found: list[dict[str, Any]] = reader.ask("topics describe orders")["partitions"]
    return found


def test_a_newcomer_reaches_the_end_of_the_page(reader: Reader) -> None:
    up, create, query, more, die, look, again, back, move, join, poll = shown(reader.page, "sh")
    start(reader, up)
    until((reader.folder / "data/cluster.json").exists, "the cluster is ready", SETTLE_S)
    broker = cluster_file(reader)["brokers"][0]["url"].removeprefix("http://")
    reader.terminal.replaced["127.0.0.1:9001"] = broker
    reader.run_block(create)

    (program,) = shown(reader.page, "python")
    reader.save("count.py", program.text)
    counting = start(reader, query)
    counting.wait_for("| 1000|")
    reader.run_block(more)
    counting.wait_for("| 1500|")

    reader.run_block(die)
    until(lambda: all(4 not in one for one in replicas(reader)), "healed", SETTLE_S)
    reader.run_block(look)
    assert [sorted(row["isr"]) for row in partitions(reader)] == [[1, 2, 3]] * 3
    reader.run_block(again)
    counting.wait_for("| 2000|")
    reader.run_block(back)

    reader.run_block(move)
    assert replicas(reader)[0] == [4, 1, 2]
    assert partitions(reader)[0]["leader"] == 4

    reader.run_block(join)
    reader.run_block(poll)
    assert len(json.loads((reader.folder / "first.json").read_text())["records"]) == 100
    assert reader.ask("groups lag billing")["total"] == 2000 - 100

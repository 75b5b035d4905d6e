"""The Python client as a user gets it: its guide, and its wheel in an empty environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documentation.blocks import commands_of
from tests.support.documentation.reader import shown
from tests.support.documentation.shell import Terminal
from tests.support.pandas.packages import environment as pandas_environment
from tests.support.services.up import Up, running

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "docs/python-client.md",
    *(page for page in sorted((ROOT / "docs/client").glob("*.md")) if page.stem != "javascript"),
]
"""The pages whose blocks are run here; test_javascript.py runs the other one."""
PRINTED = {
    "python-client": ["b'two coffees'", r"(?m)^\d{5} .*orders"],
    "consuming": [
        "now mine: visits-0 visits-1",
        "next is 3",
        "20 records are readable",
        "ledger|0",
    ],
    "dataframes": ["3 rows appended", "3 rows with", "{'ann': 349, 'bob': 400}", "3 records"],
    "producing": ["appended at offset", "10000 sent, 0 failed"],
    "quickstart": ["'item': 'coffee'"],
    "serializers": ["ann 250", "'tip': 0"],
}
"""What the program of each page prints, as patterns."""
ADDRESS = "http://127.0.0.1:9001"
WORDS = (
    *("up", "--brokers", "1", "--controllers", "1", "--coordinators", "1"),
    *("--set", "zookeeper.session.timeout.ms=2000", "--set", "default.replication.factor=1"),
)
BUILD = "import os, sys, uv_build; os.chdir(sys.argv[1]); print(uv_build.build_wheel(sys.argv[2]))"

BARE = """
import asyncio, sys
from leadline_client import (
    AsyncClient, AsyncConsumer, AsyncProducer, Client, Consumer, MissingExtra, NewTopic,
    OutgoingRecord, PartitionReader, Producer, ProducerSettings,
)

try:
    import aiohttp
except ImportError:
    pass
else:
    sys.exit("the environment is not empty")

address = sys.argv[1]
with Client(address) as client:
    client.create_topic(NewTopic("bare", partitions=2))
    assert client.produce("bare", 0, [OutgoingRecord(b"json")]).base_offset == 0
    assert client.fetch("bare", 0, 0).records[0].value == b"json"
    with Producer(client, ProducerSettings(compression="gzip")) as producer:
        sent = [producer.send("bare", b"%d" % n, partition=0) for n in range(500)]
    assert [one.result().offset for one in sent] == list(range(1, 501))
    read = [one.offset for one in PartitionReader(client, "bare", 0).read_to(501)]
    assert read == list(range(501))
with Consumer(address) as consumer:
    consumer.assign([("bare", 0), ("bare", 1)])
    found = []
    while len(found) < 501:
        found += [one.record.value for one in consumer.poll(5)]
    assert found[1:] == [b"%d" % n for n in range(500)]
try:
    Producer(address, ProducerSettings(compression="zstd"))
except MissingExtra as error:
    assert "leadline-client[records]" in str(error), error
with Consumer(address, "group") as consumer:
    try:
        consumer.subscribe(["bare"])
    except MissingExtra as error:
        assert "leadline-client[groups]" in str(error), error
    else:
        sys.exit("a consumer joined a group without a WebSocket library")

async def main():
    async with AsyncClient(address) as client, AsyncProducer(client) as producer:
        last = await producer.send("bare", b"last", partition=1, headers=[("h", b"1")])
        assert (await last).offset == 0
    async with AsyncConsumer(address) as consumer:
        await consumer.assign([("bare", 1)])
        [one] = await consumer.poll(5)
        assert (one.record.value, one.record.headers) == (b"last", (("h", b"1"),))

asyncio.run(main())
print("it works")
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("client"), *WORDS) as up:
        yield up


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which only the wheel of `leadline-client` is installed."""
    place = tmp_path_factory.mktemp("bare")
    done = run(sys.executable, "-c", BUILD, str(ROOT / "libs/client"), str(place))
    wheel = place / done.stdout.split()[-1]
    run(sys.executable, "-m", "venv", "--without-pip", str(place / "venv"))
    python = place / "venv/bin/python"
    pip = (sys.executable, "-m", "pip", "--python", str(python))
    run(*pip, "install", "--no-index", "--disable-pip-version-check", str(wheel))
    return python


def run(*command: str, python_path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = python_path
    # The build backend looks for its program there.
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def address(up: Up) -> str:
    url: str = up.document["brokers"][0]["url"]
    return url


def test_defect_21_bare_install_creates_produces_and_consumes(
    up: Up, empty_environment: Path
) -> None:
    done = run(str(empty_environment), "-W", "error", "-c", BARE, address(up))
    assert done.stdout == "it works\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_defect_21_a_page_runs_block_by_block(page: Path, up: Up, tmp_path: Path) -> None:
    program = "\n".join(block.text for block in shown(page, "python"))
    assert ADDRESS in program
    path = pandas_environment()["PYTHONPATH"] if "pandas" in program else None
    program = program.replace(ADDRESS, address(up))
    done = run(sys.executable, "-W", "error", "-c", program, python_path=path)
    for printed in PRINTED[page.stem]:
        assert re.search(printed, done.stdout), done.stdout
    # What the page starts a cluster with is run by test_up.py and others, on ports of their own.
    commands = [one for block in shown(page, "sh") for one in commands_of(block)]
    assert commands[:1] in ([], [f"leadline up --port-base {ADDRESS[-4:-1]}0"])
    terminal = Terminal(tmp_path, environment={"LEADLINE_BOOTSTRAP": address(up)})
    for command in commands[1:]:
        assert terminal.run(command)


def test_every_page_of_the_client_is_run() -> None:
    assert {page.stem for page in PAGES} == PRINTED.keys()

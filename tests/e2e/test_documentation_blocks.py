"""Every command and program that the documentation shows runs as it is shown.

The pages share a cluster of four brokers, which each finds without topics. README's tour starts a
cluster of its own.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.sessions import SETTINGS
from tests.support.documentation.blocks import (
    LANGUAGES,
    PAGES,
    ROOT,
    begins_with_a_program,
    blocks_of,
    commands_of,
    name_of,
)
from tests.support.documentation.reader import Reader, Spec, shown
from tests.support.documentation.shell import Running
from tests.support.openapi.generator import environment as generator_programs
from tests.support.services.up import Up, running, until

pytestmark = pytest.mark.timeout(2400)

MOST_NOT_RUN = 22
ORDERS = "leadline topics create orders --partitions 3 --replication-factor 3"
PLACED_ORDERS = "leadline topics create orders --assignment 1:2:3,2:3:1,3:1:2"
PAYMENTS = ORDERS.replace("orders", "payments")
RECORDS = "seq 300 | sed 's/.*/&:value &/' | leadline produce orders --key-separator :"
READ = "leadline consume orders --group billing --from earliest --max 10"
MANY_RECORDS = RECORDS.replace("300", "20000").replace("value", "v" * 200)
"""A megabyte in each partition: minutes of copying, with the throttle of the page."""
EVICT = "leadline groups evict billing MEMBER"
START = "leadline reassign start moves.json --throttle 50000000 --watch"
MOVE = "leadline reassign start --partition orders-1=4:2:3 --throttle 1000"
PLAN = "leadline plan balance"
STOP = "leadline brokers can-stop 3"
CONTINUOUS = "leadline spark archive --topics orders,payments --to /archive --continuous"
SETTLE_S = 900.0
COLLECT = {
    " -m pytest": " -m pytest --collect-only -q",
    **{
        f"make {name}": f"make -C {ROOT} {name} SEEDS=1 ARGS=--collect-only"
        for name in ("faults", "gate", "soak")
    },
}
"""The tests that a page names must exist; they are run by themselves."""
SESSION = f"""
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for name, value in {SETTINGS!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""


def load(reader: Reader) -> None:
    """Make the partitions large enough for a throttled move to last."""
    reader.terminal.run(MANY_RECORDS)


def name_task(reader: Reader) -> None:
    """Put the id of the newest task in the place of the page's."""
    newest = max(task["id"] for task in reader.ask("tasks list")["tasks"])
    reader.terminal.replaced["0000000007"] = newest


def settle(reader: Reader) -> None:
    """Wait until no partition is being reassigned."""
    until(
        lambda: not reader.ask("reassign list")["reassignments"], "nothing is reassigned", SETTLE_S
    )


def write_moves(reader: Reader) -> None:
    """Save the JSON that the page shows under the name that it gives."""
    (moves,) = shown(reader.page, "json")
    reader.save("moves.json", moves.text)


def join_group(reader: Reader) -> None:
    """Let a consumer into the group, and put its id in the place of the page's."""
    consumer = Running(reader.terminal, "leadline consume orders --group billing --follow")
    reader.background.append(consumer)
    until(lambda: members(reader), "the consumer is in the group")
    reader.terminal.replaced["MEMBER"] = members(reader)[0]


def leave_group(reader: Reader) -> None:
    """End the consumer that `join_group` started, once it has joined again after its eviction."""
    evicted = reader.terminal.replaced["MEMBER"]
    until(lambda: set(members(reader)) - {evicted}, "the consumer has joined again")
    reader.background.pop().interrupt()
    until(lambda: not members(reader), "the group has no members")


def archive_more(reader: Reader) -> None:
    """Append a record, and wait until the archive has it."""

    def files() -> int:
        return len(list((reader.folder / "archive").rglob("*.parquet")))

    before = files()
    reader.terminal.run("echo one more | leadline produce orders")
    until(lambda: files() > before, "the record is archived", SETTLE_S)


def members(reader: Reader) -> list[str]:
    """Return the ids of the members of the page's group."""
    return [member["id"] for member in reader.ask("groups describe billing")["members"]]


SPECS = {
    "../examples/README": Spec(),
    "analytics": Spec(prepared=[ORDERS, RECORDS]),
    "archive": Spec(
        prepared=[ORDERS, PAYMENTS, RECORDS],
        replaced={"/archive": "archive", **COLLECT},
        during={CONTINUOUS: archive_more},
        linked=["tests", "pyproject.toml"],
    ),
    "consumer-groups": Spec(
        prepared=[ORDERS, RECORDS],
        replaced={"while True:": "for _ in range(20):"},
        before={EVICT: join_group},
        after={EVICT: leave_group},
        preludes=["handle = print", ""],
    ),
    "exactly-once": Spec(prepared=[ORDERS]),
    "http-clients": Spec(
        prepared=[ORDERS, 'PATH="$GENERATOR:$PATH"'],
        preludes=["", ""],
        python=lambda: generator_programs() / "python",
        linked=["openapi", "tests"],
    ),
    "protocol": Spec(
        # CI searches the whole model in tests/unit/test_protocol_model.py.
        replaced={"tests.protocol_model ": "tests.protocol_model --crashes 0 --changes 0 "},
        linked=["tests", "pyproject.toml"],
    ),
    "reassignment": Spec(
        before={START: write_moves, PLAN: settle, STOP: settle},
        after={PLACED_ORDERS: load, MOVE: name_task},
    ),
    "security": Spec(preludes=["", ""]),
    "self-healing": Spec(prepared=[ORDERS]),
    "simulation": Spec(
        replaced={"0-10000": "0-20", "0-2000": "0-1", **COLLECT},
        linked=["tests", "pyproject.toml"],
    ),
    "tables": Spec(prepared=[ORDERS], preludes=[SESSION, ""]),
    "testing": Spec(replaced=COLLECT, linked=["tests", "pyproject.toml"]),
    "tracing": Spec(),
    "v3": Spec(prepared=[ORDERS, RECORDS, READ]),
}
ORDERS_STREAM = """
orders = (
    spark.readStream.format("leadline").option("bootstrap", "127.0.0.1:9092")
    .option("subscribe", "orders").option("startingOffsets", "earliest").load()
)
"""
WITH_SPARK = ("analytics", "archive", "tables")
"""Pages whose commands start Spark again and again: minutes, even on a quiet machine."""
CLIENT = {"python-client", *(f"client/{page.stem}" for page in (ROOT / "docs/client").glob("*.md"))}
OTHERS = {"../README", "spark", "three-hosts", "getting-started"} | CLIENT
"""Pages with tests of their own: below, in test_three_hosts.py, test_getting_started.py,
test_python_client.py and test_javascript.py."""
README = Spec(preludes=[f'{SESSION}\nB = "http://127.0.0.1:…"', "assert orders.isStreaming"])
SPARK = Spec(
    preludes=[
        SESSION,
        "df = spark.createDataFrame([(1,), (2,)], 'id int')",
        ORDERS_STREAM,
        "copy.processAllAvailable(); copy.stop()",
    ],
)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A cluster of four brokers."""
    words = ("up", "--brokers", "4", "--controllers", "1", "--coordinators", "1")
    with running(tmp_path_factory.mktemp("cluster"), *words) as started:
        yield started


@pytest.fixture
def folder(up: Up, tmp_path: Path) -> Iterator[Path]:
    """A working directory where commands find the cluster; the topics are deleted afterwards."""
    (tmp_path / "data").symlink_to(up.data_dir)
    yield tmp_path
    for topic in up.ask("topics", "list")["topics"]:
        up.ask("topics", "delete", topic["topic"], "--yes")


def test_defect_24_every_block_has_a_language_and_few_are_not_run() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert [str(block) for block in blocks if block.language not in LANGUAGES] == []
    texts = [block for block in blocks if block.language == "text"]
    assert [str(block) for block in texts if begins_with_a_program(block)] == []
    left_out = [f"{block}: {block.reason}" for block in blocks if block.reason]
    assert len(left_out) <= MOST_NOT_RUN, left_out
    for block in blocks:
        if block.language == "json":
            json.loads(block.text)


def test_defect_24_every_page_with_commands_is_run() -> None:
    pages = {name_of(page) for page in PAGES if any(shown(page, kind) for kind in ("sh", "python"))}
    assert pages == {*SPECS, *OTHERS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name in WITH_SPARK)) for name in SPECS]
)
def test_defect_24_blocks_of_a_page_run(
    name: str, up: Up, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENERATOR", str(generator_programs()))
    Reader(f"docs/{name}.md", folder, SPECS[name]).read()


@pytest.mark.soak
def test_defect_24_program_of_the_readme_runs(folder: Path) -> None:
    reader = Reader("README.md", folder, README)
    reader.terminal.run(ORDERS)
    reader.find_address()
    reader.run_programs([block.text for block in shown(reader.page, "python")])


@pytest.mark.soak
def test_defect_24_blocks_of_the_spark_page_run(up: Up, folder: Path) -> None:
    reader = Reader("docs/spark.md", folder, SPARK)
    start, create, java, produce, report = shown(reader.page, "sh")
    source, words, batch, copy = (block.text for block in shown(reader.page, "python"))
    # README's tour starts a cluster as the page says.
    assert commands_of(start)[-1].startswith("leadline up")
    reader.run_block(create)
    reader.find_address()
    reader.run_block(java)
    reader.save("words.py", words)
    query = Running(reader.terminal, "python words.py")
    try:
        query.wait_for("Batch: 0")
        reader.run_block(produce)
        query.wait_for("|  to|    2|")
        reader.run_block(report)
    finally:
        query.interrupt()
    assert (folder / "report/report.html").exists()
    reader.terminal.run(ORDERS.replace("orders", "orders-copy"))
    reader.terminal.replaced["/var/lib/"] = f"{folder}/"
    reader.run_programs([source, batch, copy])


def test_defect_24_readme_tour(tmp_path: Path) -> None:
    """The tour on the cluster that it starts, with a broker killed where it says so."""
    start_here = {"make up": f"make -C {ROOT} up ARGS='--data-dir {tmp_path}/data'"}
    reader = Reader("README.md", tmp_path, Spec(replaced=start_here))
    start, produce, groups, failure, plans, http = shown(reader.page, "sh")
    cluster = Running(reader.terminal, commands_of(start)[0])
    try:
        until((tmp_path / "data/cluster.json").exists, "the cluster is ready")
        for block in (produce, groups):
            reader.run_block(block)
        kill_a_leader(reader)
        for block in (failure, plans):
            reader.run_block(block)
        reader.find_address()
        reader.run_block(http)
    finally:
        cluster.interrupt(also=2)  # that of make, whose command was interrupted


def kill_a_leader(reader: Reader) -> None:
    """Kill the leader of orders-0, and wait until another broker leads."""

    def leader() -> int:
        found: int = reader.ask("metadata orders")["topics"]["orders"]["partitions"][0][1]
        return found

    killed = leader()
    brokers = json.loads((reader.folder / "data/cluster.json").read_text())["brokers"]
    os.kill(next(row["pid"] for row in brokers if row["id"] == killed), signal.SIGKILL)
    until(lambda: leader() not in (killed, -1), "another broker leads")

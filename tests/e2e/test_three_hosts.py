"""The guide for three hosts, in three network namespaces: one host is killed, another cut off.

Every service speaks TLS and asks for tokens. The commands are those of docs/three-hosts.md; the
test copies the directories, and turns hosts off and on.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import pytest_asyncio

from leadline_client import AsyncClient, Security
from leadline_spark import register
from tests.spark.sessions import local_session
from tests.support.documentation.blocks import ROOT, Block, blocks_of, commands_of
from tests.support.documentation.reader import shown
from tests.support.documentation.shell import CommandFailed, Terminal
from tests.support.faults.load import Load, read_partition, value_of
from tests.support.network import Network, why_not
from tests.support.services.cluster import wait_until

PAGE = ROOT / "docs/three-hosts.md"
HOSTS = ("a", "b", "c")
PARTITIONS = 6

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]


@dataclass
class Machines:
    """Three hosts, each with its directory, and the operator's machine, which is this one."""

    network: Network
    folder: Path
    terminal: Terminal
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def security(self) -> Security:
        admin = self.folder / "cluster/admin"
        return Security(str(admin / "ca.pem"), token_file=str(admin / "admin.token"))

    def url(self, host: str) -> str:
        return f"https://{self.network.address_of(host)}:9092"

    @property
    def urls(self) -> list[str]:
        return [self.url(host) for host in HOSTS]

    def turn_on(self, host: str) -> None:
        """Run what the page says, on a host."""
        home = self.folder / "hosts" / host
        command = ["leadline", "host", "leadline"]
        assert any(block.text.strip() == " ".join(command) for block in blocks_of(PAGE))
        with (home / "host.log").open("ab") as log:
            self.running[host] = subprocess.Popen(
                self.network.inside(host, command),
                cwd=home,
                env=self.terminal.all_variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def turn_off(self, host: str) -> None:
        """Kill all processes of a host at once: its services die with the first one."""
        process = self.running.pop(host)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def turn_all_off(self) -> None:
        for host in list(self.running):
            self.turn_off(host)

    def ask(self, words: str) -> Any:
        return json.loads(self.terminal.run(f"leadline {words} --json"))

    def counts(self, block: Block) -> list[int]:
        """Run the commands of a block; return what its `wc -l` have printed."""
        printed = [self.terminal.run(command) for command in commands_of(block)]
        return [int(text) for text in printed if text.strip().isdecimal()]

    async def live(self, brokers: set[int]) -> bool:
        return {row["id"] for row in self.ask("brokers")["brokers"]} == brokers

    async def succeeds(self, command: str) -> bool:
        try:
            self.terminal.run(command)
        except CommandFailed:
            return False
        return True

    def partitions(self, *topics: str) -> list[tuple[int, list[int]]]:
        """Return leader and ISR of all partitions of topics; without any, of all topics."""
        found = self.ask(f"metadata {' '.join(topics)}")["topics"].values()
        rows = [row for topic in found for row in topic["partitions"]]
        return [(leader, isr) for _, leader, _, isr, _ in rows]

    async def replicated(self) -> bool:
        """Tell whether every partition has a leader and three replicas in sync."""
        return all(leader >= 0 and len(isr) == 3 for leader, isr in self.partitions())


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """Three hosts that are off, with what the page makes for them."""
    with Network(HOSTS) as network, ExitStack() as stack:
        terminal = Terminal(folder)
        for number, host in enumerate(HOSTS, 1):
            terminal.replaced[f"10.0.0.1{number}"] = network.address_of(host)
        made = Machines(network, folder, terminal)
        stack.callback(made.turn_all_off)
        inventory = next(block for block in shown(PAGE, "text") if "[[hosts]]" in block.text)
        (folder / "inventory.toml").write_text(terminal.text_of(inventory.text))
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Machines]:
    with machines(tmp_path_factory.mktemp("three")) as made:
        yield made


async def test_the_guide_with_a_host_killed_and_another_cut_off(three: Machines) -> None:
    init, admin, variables, use, lose = shown(PAGE, "sh")
    for command in commands_of(init):
        three.terminal.run(command)
    for host in HOSTS:
        copytree(three.folder / "cluster" / host, three.folder / "hosts" / host / "leadline")
        three.turn_on(host)
    for block in (admin, variables):
        for command in commands_of(block):
            await wait_until(partial(three.succeeds, command), f"{command} succeeds")
    assert three.counts(use) == [1000]
    three.terminal.run("leadline topics create load --partitions 6 --replication-factor 3")
    security = three.security
    load = Load(three.urls, "load", PARTITIONS, rate=600, batch_size=20, security=security)
    async with load:
        await load.progress()
        three.turn_off("a")
        await wait_until(lambda: three.live({2, 3}), "host a is gone")
        await load.progress()
        assert three.counts(lose) == [2000]
        three.turn_on("a")
        await wait_until(three.replicated, "host a is back")
        three.network.cut_off("b")
        await wait_until(lambda: three.live({1, 3}), "host b is gone")
        await load.progress()
        three.network.reconnect("b")
        await wait_until(three.replicated, "host b is back")
        await load.progress()
    await nothing_is_lost(three, load)


async def nothing_is_lost(three: Machines, load: Load) -> None:
    """Compare what was acknowledged with what each partition has, and with what Spark reads."""
    three.terminal.run("leadline elect preferred")

    async def each_leads() -> bool:
        return {leader for leader, _ in three.partitions("load")} == {1, 2, 3}

    await wait_until(each_leads, "each host leads partitions")
    async with AsyncClient(three.urls, security=three.security) as client:
        reads = [await read_partition(client, "load", number) for number in range(PARTITIONS)]
    assert load.history.check(reads) == []
    values = [str(value) for read in reads for _, value in read.records]
    assert sorted(await asyncio.to_thread(read_by_spark, three)) == sorted(values)


def read_by_spark(three: Machines) -> list[str]:
    """Return all values of the topic, as Spark reads them from the leaders of its partitions."""
    admin = three.folder / "cluster/admin"
    session = local_session(three.folder / "spark")
    try:
        register(session)
        reader = session.read.format("leadline").option("bootstrap", ",".join(three.urls))
        reader = reader.option("ca.file", str(admin / "ca.pem"))
        reader = reader.option("token.file", str(admin / "admin.token"))
        rows = reader.option("subscribe", "load").load().select("value")
        return [value_of(row[0]) for row in rows.collect()]
    finally:
        session.stop()

"""Reading a page of the documentation, and doing what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from leadline_cli.java_runtime import spark_java_home
from tests.support.documentation.blocks import (
    ROOT,
    Block,
    blocks_of,
    commands_of,
    without_comment,
)
from tests.support.documentation.shell import Running, Terminal

ADDRESSES = ("127.0.0.1:…", "127.0.0.1:9091", "127.0.0.1:9092")
"""What pages show as the address of a broker."""
ENDLESS = re.compile(r"--follow|lag .*--watch|tasks status .*--watch|--continuous")
"""What runs until Ctrl-C."""
MAY_SAY_NO = re.compile(
    r"leadline (doctor|brokers (can-stop|forget))\b|.*tests\.simulation --seed "
)
"""What exits with 1 if its answer is no, or if it finds what it is to find."""


@dataclass(frozen=True)
class Spec:
    """What a page takes for granted, and what a reader replaces in it.

    `before` and `after` are what happens outside of the page around one of its commands, `during`
    what happens while one runs that does not end by itself. `preludes`
    are the statements before each Python block, and those after the last. `python` runs them, in
    `linked` files of the repository.
    """

    prepared: Sequence[str] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Callable[[Reader], None]] = field(default_factory=dict)
    during: Mapping[str, Callable[[Reader], None]] = field(default_factory=dict)
    after: Mapping[str, Callable[[Reader], None]] = field(default_factory=dict)
    preludes: Sequence[str] = ()
    python: Callable[[], Path] = lambda: ROOT / ".venv/bin/python"
    linked: Sequence[str] = ()


class Reader:
    """Follows a page from top to bottom, in a working directory of its own."""

    def __init__(self, page: str, folder: Path, spec: Spec) -> None:
        self.page, self.folder, self.spec = ROOT / page, folder, spec
        for name in spec.linked:
            (folder / name).symlink_to(ROOT / name)
        java = {"JAVA_HOME": str(spark_java_home())}
        self.terminal = Terminal(folder, dict(spec.replaced), java)
        self.background: list[Running] = []

    def read(self) -> None:
        """Run the shell blocks, command by command, then the Python blocks as one program."""
        for command in self.spec.prepared:
            self.terminal.run(command)
        if self.spec.prepared:
            self.find_address()
        try:
            for block in shown(self.page, "sh"):
                self.run_block(block)
        finally:
            for one in self.background:
                one.interrupt()
        if programs := shown(self.page, "python"):
            self.run_programs([block.text for block in programs])

    def run_block(self, block: Block) -> None:
        """Run the commands of a shell block."""
        for command in commands_of(block):
            self.run_command(command)

    def run_command(self, command: str) -> None:
        """Run one command, with what happens around it."""
        key = without_comment(command)
        self.spec.before.get(key, nothing)(self)
        if ENDLESS.search(key):
            self.terminal.interrupt(command, partial(self.spec.during.get(key, nothing), self))
        else:
            self.terminal.run(command, expected=(0, 1) if MAY_SAY_NO.match(key) else (0,))
        self.spec.after.get(key, nothing)(self)

    def ask(self, words: str) -> Any:
        """Return what a `leadline` command prints as JSON."""
        printed = self.terminal.run(f"leadline {words} --json").splitlines()
        return json.loads(next(line for line in printed if line.startswith("{")))

    def find_address(self) -> None:
        """Put the leader of orders-0 in the place of the addresses in the page."""
        document = self.ask("metadata orders")
        leader = document["topics"]["orders"]["partitions"][0][1]
        url = next(str(broker["url"]) for broker in document["brokers"] if broker["id"] == leader)
        self.terminal.replaced.update(dict.fromkeys(ADDRESSES, url.removeprefix("http://")))

    def run_programs(self, programs: Sequence[str]) -> None:
        """Run programs one after another in one process, with the page's preludes."""
        preludes = self.spec.preludes
        assert len(preludes) == len(programs) + 1, f"{self.page}: one for each block, and the end"
        parts = [part for pair in zip(preludes, [*programs, ""], strict=True) for part in pair]
        self.save("program.py", "\n".join(parts))
        self.terminal.run(f"{self.spec.python()} program.py")

    def save(self, name: str, text: str) -> None:
        """Save a program, with the page's addresses replaced."""
        (self.folder / name).write_text(self.terminal.text_of(text), encoding="utf-8")


def nothing(reader: Reader) -> None:
    """Leave it at that."""


def shown(page: Path, language: str) -> list[Block]:
    """Return the blocks of a page that are to be run, in one language."""
    return [block for block in blocks_of(page) if block.language == language and not block.reason]

"""mypy checks events from the route to the handler: the fields, the answer, and the handler."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shared_folder import shared_folder

ROOT = Path(__file__).resolve().parents[3]

CODE = """\
from leadline_client.wire import NewTopic
from leadline_controller.runtime.engine.events import Reply
from leadline_controller.runtime.idempotency import DropKey
from leadline_controller.runtime.service import ControllerService
from leadline_controller.runtime.topics.brokers import BrokerGone
from leadline_controller.runtime.topics.deletions import DeleteTopic
from leadline_controller.runtime.topics.topics import (
    Assignment,
    CreateTopic,
    TopicsChanged,
)

NEW = NewTopic("orders", 1, 1)


async def route(service: ControllerService) -> None:
    replicas: Assignment = await service.ask(CreateTopic(new=NEW, dry_run=False))
    topic_id: str = await service.ask(DeleteTopic("orders"))
    service.post(DropKey("key", marked=False))
    await service.ask(CreateTopic(now=NEW, dry_run=False))  # call-arg
    await service.ask(CreateTopic(new="orders", dry_run=False))  # arg-type
    number: int = await service.ask(DeleteTopic("orders"))  # arg-type
    await service.ask(DropKey("key", marked=False))  # arg-type
    service.post(DeleteTopic("orders"))  # arg-type
    print(replicas, topic_id, number)


class Handler:
    @CreateTopic.handler
    async def on_create(self, event: CreateTopic, reply: Reply[Assignment]) -> None:
        reply.settle({0: (1, 2)})
        reply.settle(event.new.name)  # arg-type
        print(event.now)  # attr-defined

    @BrokerGone.handler
    async def on_gone(self, event: BrokerGone) -> None:
        print(event.broker_id)

    @TopicsChanged.handler
    async def on_topics(self) -> None:
        await self.on_gone(BrokerGone(1, 2))

    @DeleteTopic.handler  # arg-type
    async def on_other_request(self, event: CreateTopic, reply: Reply[str]) -> None: ...

    @DeleteTopic.handler  # arg-type
    async def on_other_answer(self, event: DeleteTopic, reply: Reply[int]) -> None: ...

    @BrokerGone.handler  # arg-type
    async def on_other_event(self, event: DropKey) -> None: ...

    @TopicsChanged.handler  # arg-type
    async def on_no_event(self, event: TopicsChanged) -> None: ...
"""


def lines_with(pattern: str, text: str) -> set[tuple[int, str]]:
    found = (re.search(pattern, line) for line in text.splitlines())
    return {(number, match[1]) for number, match in enumerate(found, 1) if match}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says about the code, with the settings of this repository."""

    def fill(folder: Path) -> None:
        module = folder / "planted.py"
        module.write_text(CODE, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary", str(module)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        (folder / "report").write_text(done.stdout + done.stderr, encoding="utf-8")

    return (shared_folder(tmp_path_factory, "planted", fill) / "report").read_text(encoding="utf-8")


def test_mypy_refuses_each_planted_error_and_nothing_else(report: str) -> None:
    errors = re.findall(r"planted\.py:(\d+): error: .* \[([a-z-]+)\]", report)
    assert {(int(number), code) for number, code in errors} == lines_with(r"  # ([a-z-]+)$", CODE)

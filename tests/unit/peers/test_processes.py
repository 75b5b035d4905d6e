"""Clients in processes of their own: what they may import, and how their failure is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.clients.work import Work
from peers.processes import FOLDER, Client, ClientFailed
from peers.systems.waiting import until

CONFLUENT = "Consumer = Producer = TopicPartition = object\nOFFSET_BEGINNING = 0\n"


@pytest.mark.parametrize("module", ["worker", "confluent_driver"])
def test_an_environment_without_leadline_can_run_a_client(module: str, tmp_path: Path) -> None:
    (tmp_path / "confluent_kafka.py").write_text(CONFLUENT)
    program = f"import sys; sys.path += [{str(FOLDER)!r}, {str(tmp_path)!r}]\n"
    program += f"import peers.clients.{module}"
    command = [sys.executable, "-S", "-I", "-c", program]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


async def test_a_client_that_fails_is_reported_with_what_it_printed() -> None:
    with pytest.raises(ClientFailed, match=r"(?s)leadline: juggle: .*'juggle'"):
        await Client("leadline").do("juggle", "http://127.0.0.1:1", Work("t", 1, 1, 1))


async def test_a_refused_connection_means_not_yet() -> None:
    answers: Iterator[bool | OSError] = iter([ConnectionRefusedError("nobody"), False, True])

    async def condition() -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert await until(condition, "it holds", poll_s=0) > 0


async def test_what_does_not_come_in_time_is_named() -> None:
    async def condition() -> bool:
        raise ConnectionRefusedError("nobody")

    with pytest.raises(TimeoutError, match="it holds: nobody"):
        await until(condition, "it holds", deadline_s=0, poll_s=0)

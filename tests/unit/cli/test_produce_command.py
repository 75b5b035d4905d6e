"""What `leadline produce` reports if it cannot send all of its input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import typer

from leadline_cli.commands.produce import _report, _send_all, _Target
from leadline_cli.line_input import UnreadableInput
from leadline_cli.output import EXIT_REFUSED, EXIT_UNKNOWN
from leadline_client.errors import NotLeader, UnknownTopic
from leadline_client.producer_settings import ProducerSettings
from leadline_client.security import Security
from tests.support.services.cluster import wait_until
from tests.unit.client.standin import StandInCluster

Line = tuple[bytes | None, bytes]
_MOST_LINES = 1_000


async def lines_while_the_topic_goes(cluster: StandInCluster) -> AsyncIterator[Line]:
    """Yield a line that is acknowledged, and others once the topic is deleted."""
    row = cluster.partitions[0]
    yield None, b"acknowledged"

    async def is_appended() -> bool:
        return row.end == 1

    await wait_until(is_appended, "the line is appended")
    cluster.stale_metadata = {**cluster.metadata(), "version": cluster.version + 1, "topics": {}}
    row.faults.append(NotLeader("it is deleted"))
    for _ in range(_MOST_LINES):
        yield None, b"too late"
        await asyncio.sleep(0.01)


def test_a_topic_that_goes_does_not_hide_what_was_acknowledged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with StandInCluster(brokers=1, partitions=1).running() as cluster:
        lines = lines_while_the_topic_goes(cluster)
        target = _Target("t", None, ())
        counter = asyncio.run(
            _send_all(cluster.bootstrap, Security(), ProducerSettings(), target, lines)
        )
    assert counter.counts["acknowledged"] == 1
    assert 1 <= counter.counts["refused"] < _MOST_LINES
    assert isinstance(counter.failure, UnknownTopic | NotLeader)
    with pytest.raises(typer.Exit) as ended:
        _report(counter, as_json=True)
    assert ended.value.exit_code == EXIT_REFUSED
    assert '"acknowledged": 1' in capsys.readouterr().out
    counter.counts["unknown"] += 1
    with pytest.raises(typer.Exit) as ended:
        _report(counter, as_json=True)
    assert ended.value.exit_code == EXIT_UNKNOWN


async def lines_of_a_disk_that_fails() -> AsyncIterator[Line]:
    yield None, b"one"
    yield None, b"two"
    raise UnreadableInput("Input/output error")


def test_input_that_cannot_be_read_further_is_sent_and_counted_so_far(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with StandInCluster(brokers=1, partitions=1).running() as cluster:
        target = _Target("t", None, ())
        lines = lines_of_a_disk_that_fails()
        counter = asyncio.run(
            _send_all(cluster.bootstrap, Security(), ProducerSettings(), target, lines)
        )
        assert cluster.values(0) == [b"one", b"two"]
    with pytest.raises(typer.Exit) as ended:
        _report(counter, as_json=False)
    assert ended.value.exit_code == EXIT_REFUSED
    told = capsys.readouterr().err
    assert "2 acknowledged, 0 refused, 0 unknown" in told
    assert "cannot be read further (Input/output error)" in told

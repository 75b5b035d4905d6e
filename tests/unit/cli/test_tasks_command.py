"""Following a task: what is printed when it ends, and when the user stops waiting for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer

from leadline_cli.commands import tasks
from leadline_cli.commands.tasks import follow, show_task
from leadline_client.client import Client
from leadline_client.errors import AllKnownBrokersNotAvailable, LeadlineError


class Interrupted(Client):
    """A client whose user presses Ctrl-C."""

    administer: Any = staticmethod(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))


def task(state: str) -> dict[str, Any]:
    counts = dict.fromkeys(("done", "total", "moving", "waiting", "failed"), 0)
    return {
        "id": "7",
        "kind": "drain",
        "state": state,
        "reason": None,
        "dry_run": False,
        "partitions": counts,
        "details": {},
    }


@pytest.mark.parametrize("as_json", [True, False])
def test_a_task_that_was_followed_and_was_not_done_ends_the_command_with_1(as_json: bool) -> None:
    show_task(task("done"), as_json=as_json, over=True)
    show_task(task("cancelled"), as_json=as_json)
    with pytest.raises(typer.Exit) as ended:
        show_task(task("cancelled"), as_json=as_json, over=True)
    assert ended.value.exit_code == 1


class Waiting(Client):
    """A client of a cluster where a task waits, and then is done."""

    answers: Any = None

    def administer(self, *_: Any, **__: Any) -> Any:
        answer = next(self.answers)
        if isinstance(answer, LeadlineError):
            raise answer
        return answer


def test_defect_17_through_a_pipe_a_watch_prints_what_the_task_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_POLL_S", 0)
    waiting = task("preparing") | {"waits_for": "a broker without a replica"}
    with Waiting("127.0.0.1:1") as client:
        client.answers = iter([waiting, waiting, task("done")])
        follow(client, "7", as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        "task 7: preparing, 0 of 0 partitions done, waits: a broker without a replica",
        "task 7: done, 0 of 0 partitions done",
    ]


def test_who_stops_following_is_told_that_the_task_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Interrupted("127.0.0.1:1") as client, pytest.raises(typer.Exit) as ended:
        follow(client, "7", as_json=False)
    assert ended.value.exit_code == 130
    assert "the task continues: `leadline tasks status 7 --watch`" in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [True, False])
def test_a_task_that_nobody_tells_about_any_more_has_an_unknown_outcome(
    as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 1, as if the task had been refused, and a script could start another one."""
    monkeypatch.setattr(tasks, "_POLL_S", 0)
    with Waiting("127.0.0.1:1") as client:
        client.answers = iter([task("running"), AllKnownBrokersNotAvailable("no broker answers")])
        with pytest.raises(typer.Exit) as ended:
            follow(client, "7", as_json=as_json)
    assert ended.value.exit_code == 3
    said = capsys.readouterr().err
    assert "the task continues: `leadline tasks status 7 --watch`" in said
    if as_json:
        assert json.loads(said.splitlines()[-1])["outcome"] == "unknown"

"""The `leadline` command on real processes: up, restart, resume, stop, administer, demo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline_common.versions import current_release
from tests.support.services.cluster import is_alive
from tests.support.services.up import DEADLINE_S, Up, command_line, running, until

SESSION = ("--set", "zookeeper.session.timeout.ms=2000")
UP = ("up", "--brokers", "3", "--controllers", "1", "--coordinators", "1", *SESSION)
SMALL = ("up", "--brokers", "1", "--controllers", "1", "--coordinators", "0")


@pytest.mark.slow
def test_a_cluster_is_used_loses_a_broker_gets_it_back_and_resumes(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(3000))
    with running(tmp_path, *UP) as up:
        assert up.document == up.file()
        assert [row["id"] for row in up.document["brokers"]] == [1, 2, 3]
        assert [row["id"] for row in up.document["coordinators"]] == [1]
        create = ("topics", "create", "t", "--partitions", "3", "--replication-factor", "3")
        assert up.run(*create).returncode == 0
        sent = up.ask("produce", "t", "-", "--partition", "0", stdin=lines)
        assert sent == {"acknowledged": 3000, "refused": 0, "unknown": 0}
        assert up.run("consume", "t", "--partition", "0").stdout == lines
        assert up.run("doctor").returncode == 0
        backup = str(tmp_path / "cluster.backup")
        written = up.ask("cluster", "backup", backup)
        assert written == up.ask("cluster", "backup", backup, "--check")
        assert written["cluster_id"] == up.document["cluster_id"]
        sources = [Path(member["source"]).name for member in written["members"]]
        assert sources == ["", "history.db"]

        victim = up.document["brokers"][0]
        os.kill(victim["pid"], signal.SIGKILL)
        until(lambda: len(up.ask("brokers")["brokers"]) == 2, "the dead broker is gone")
        assert up.file()["brokers"][0]["pid"] == victim["pid"]
        assert up.run("doctor").returncode == 1
        assert up.run("consume", "t", "--partition", "0").stdout == lines
        again = subprocess.Popen(victim["argv"], stderr=subprocess.DEVNULL)
        try:
            until(lambda: up.ask("topics", "list")["topics"][0]["under_replicated"] == 0, "in sync")
            assert up.end(signal.SIGINT) == 0
        finally:
            again.terminate()
            again.wait(DEADLINE_S)
        assert not any(is_alive(row["pid"]) for row in up.rows())

    with running(tmp_path, "up") as up:
        assert up.document["cluster_id"] == up.file()["cluster_id"]
        assert [row["id"] for row in up.document["brokers"]] == [1, 2, 3]
        assert up.run("consume", "t", "--partition", "0").stdout == lines
        assert up.run("topics", "delete", "t", "--yes").returncode == 0
        until(lambda: up.ask("topics", "list") == {"topics": []}, "the topic is gone")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("small"), *SMALL) as up:
        yield up


def test_offsets_are_shown_of_every_partition_and_refused_one_by_one(small: Up) -> None:
    assert small.run("topics", "create", "counted", "--partitions", "2").returncode == 0
    sent = small.ask("produce", "counted", "-", "--partition", "1", stdin="one\ntwo\n")
    assert sent["acknowledged"] == 2

    rows = small.ask("topics", "offsets", "counted", "--at", "2020-01-01")["partitions"]
    table = small.run("topics", "offsets", "counted", "nowhere").stdout

    assert [row["offsets"]["high_watermark"] for row in rows] == [0, 2]
    assert [row["offsets"]["offset"] for row in rows] == [None, 0]
    assert "nowhere" in table


def test_defect_19_runs_of_produce_fill_more_than_one_partition(small: Up) -> None:
    assert small.run("topics", "create", "spread", "--partitions", "3").returncode == 0
    runs = 0

    def filled() -> int:
        rows = small.ask("topics", "offsets", "spread")["partitions"]
        return sum(row["offsets"]["high_watermark"] > 0 for row in rows)

    while filled() < 2:
        assert runs < 20, "all records of all runs are in one partition"
        small.ask("produce", "spread", "-", stdin="one\ntwo\n")
        runs += 1


def test_refusals_of_a_real_cluster_have_codes_and_exit_codes(small: Up) -> None:
    many = small.run("topics", "create", "t", "--replication-factor", "9", "--json")
    assert many.returncode == 1
    assert json.loads(many.stderr)["error_code"] == 40002
    assert small.run("topics", "create", "t").returncode == 0
    assert small.run("topics", "create", "t").returncode == 1
    assert small.run("topics", "delete", "nowhere", "--yes").returncode == 1
    beyond = small.run("consume", "t", "--from", "5", "--follow", "--json")
    assert beyond.returncode == 1
    assert json.loads(beyond.stderr)["error_code"] == 41650


def test_settings_are_changed_and_shown_with_their_source(small: Up) -> None:
    def shown(*words: str) -> list[tuple[str, str, str]]:
        rows = small.ask("configs", "describe", *words)["configs"]
        return [(row["name"], row["value"], row["source"]) for row in rows]

    assert small.run("topics", "create", "configured").returncode == 0
    name = "log.retention.ms"
    changed = small.ask("configs", "set", f"{name}=7000", "min.insync.replicas=1")["changed"]
    assert [row["name"] for row in changed] == [name, "min.insync.replicas"]
    small.ask("configs", "set", f"{name}=8000", "--broker", "1")
    assert shown(name, "--broker", "1") == [(name, "8000", "broker")]
    assert shown("retention.ms", "--topic", "configured") == [("retention.ms", "7000", "cluster")]
    small.ask("configs", "set", "retention.ms=9000", "--topic", "configured")
    assert ("retention.ms", "9000", "topic") in shown("--changed", "--topic", "configured")
    gone = small.run("configs", "unset", "retention.ms", "--topic", "configured")
    assert gone.stdout == "changed retention.ms: 9000 -> not set\n"
    assert shown("broker.id", "--broker", "1") == [("broker.id", "1", "static")]
    refused = small.run("configs", "set", "broker.id=1")
    assert refused.returncode == 1
    assert "is read-only" in refused.stderr
    assert small.run("configs", "describe", "--cluster", "--broker", "1").returncode == 2
    misspelt = small.run("configs", "describe", "log.retention.mss")
    assert misspelt.returncode == 2
    assert "did you mean log.retention.ms?" in " ".join(misspelt.stderr.replace("│", " ").split())


def test_what_has_happened_is_told_with_who_and_why(small: Up) -> None:
    assert small.run("topics", "create", "told").returncode == 0
    assert small.run("topics", "create", "told").returncode == 1
    newest, _, why = small.run("audit", "--topic", "told", "--limit", "1").stdout.partition("\n")
    assert newest.endswith("create_topic  topic told")
    assert why.strip().startswith("refused by operator: ")
    explained = small.run("explain", "told-0").stdout
    assert "leader 1, epoch 0, in sync 1" in explained
    assert explained == small.run("explain", "told", "0").stdout
    assert small.run("explain", "told").returncode == 2
    assert small.run("explain", "never", "0").stdout == "no changes of never-0 are known\n"
    assert small.run("audit", "--topic", "never").stdout == "no entries match\n"
    assert small.run("brokers", "list").stdout == small.run("brokers").stdout
    assert {row["release"] for row in small.ask("brokers")["brokers"]} == {current_release()}
    assert f"{current_release()}: broker 1" in small.run("doctor", "--json").stdout
    assert "brokers_changed  live: 1\n" in small.run("audit", "--kind", "brokers_changed").stdout
    failed = small.run("failed-brokers").stdout
    assert failed == "Brokers that are down: none\n"


def test_partitions_come_and_go_and_brokers_are_taken_out_with_care(small: Up) -> None:
    assert small.run("topics", "create", "growing").returncode == 0
    added = small.ask("partitions", "add", "growing", "3")
    assert added["added"] == {"1": [1], "2": [1]}
    given = small.ask("partitions", "add", "growing", "4", "--from", "3", "--assignment", "1")
    assert given["added"] == {"3": [1]}
    assert small.run("partitions", "remove", "growing", "1", "--yes").returncode == 1
    removed = small.run("partitions", "remove", "growing", "2", "3", "--yes")
    assert removed.stdout == "removed growing 3 2\n"
    assert small.ask("elect", "preferred", "growing-0", "--dry-run")["elected"] == []
    stop = small.run("brokers", "can-stop", "1")
    assert stop.returncode == 1
    assert "no other replica is in sync" in stop.stdout
    drain = small.run("brokers", "drain", "1", "--dry-run")
    assert drain.returncode == 1
    assert "no other broker" in drain.stderr


def test_plans_are_shown_before_they_are_applied(small: Up) -> None:
    assert small.run("topics", "create", "planned", "--replication-factor", "1").returncode == 0
    broker = small.document["brokers"][0]["id"]
    made = small.ask("plan", "balance", "--topic", "planned", "--apply")
    assert (made["plan"]["partitions"], made["task"]) == ([], None)
    shown = small.run("plan", "balance", str(broker)).stdout
    assert "nothing needs to move" in shown
    nowhere = small.run("plan", "drain", str(broker), "--json")
    assert nowhere.returncode == 1
    assert json.loads(nowhere.stderr)["error_code"] == 40002


def test_no_token_is_left_valid_that_could_not_be_kept(small: Up, tmp_path: Path) -> None:
    """Nobody could ever read it, and after two of them the user could have no other."""
    assert small.run("users", "create", "clerk").returncode == 0
    for file in (tmp_path / "missing" / "token", tmp_path):
        ended = small.run("users", "token", "clerk", "--file", str(file))
        assert (ended.returncode, "no token was made" in ended.stderr) == (1, True), ended.stderr
        assert "Traceback" not in ended.stderr
    (clerk,) = [one for one in small.ask("users", "list")["users"] if one["name"] == "clerk"]
    assert clerk["tokens"] == []
    assert not list(tmp_path.parent.glob(".*.new"))


def test_an_interrupted_roll_says_how_to_go_on(small: Up) -> None:
    interrupt = "sh -c 'kill -INT $PPID'"
    words = ("cluster", "roll", "--only", "controller", "--restart-command", interrupt)
    ended = small.run(*words)
    assert ended.returncode == 130
    assert "controller-1 may be restarting" in ended.stderr
    assert "to go on: the same command" in ended.stderr


def test_two_supervisors_do_not_share_a_directory(small: Up) -> None:
    second = small.run("up")
    assert second.returncode == 1
    assert str(small.process.pid) in second.stderr


@pytest.mark.slow
def test_restart_brings_a_dead_process_back(tmp_path: Path) -> None:
    with running(tmp_path, *UP, "--restart") as up:
        before = up.file()["brokers"][1]["pid"]
        os.kill(before, signal.SIGKILL)
        until(lambda: up.file()["brokers"][1]["pid"] != before, "the broker runs again")
        until(lambda: up.run("doctor").returncode == 0, "all is well")


def test_the_end_of_the_terminal_stops_a_cluster_like_ctrl_c(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # These tests may run under nohup.
    try:
        with running(tmp_path, *SMALL) as up:
            assert up.end(signal.SIGHUP) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_no_process_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with running(tmp_path, *SMALL) as up:
        pids = [row["pid"] for row in up.rows()]
        assert len(pids) == 3
        assert all(map(is_alive, pids))
        up.end(signal.SIGKILL)
        until(lambda: not any(map(is_alive, pids)), "every process is gone")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_demo_holds_its_promise_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command_line("demo"), capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0" in done.stdout
    assert "duplicated 0" in done.stdout
    assert "reordered 0" in done.stdout
    assert "/docs" in done.stdout
    assert list(tmp_path.iterdir()) == []

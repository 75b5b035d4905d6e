"""What a user meets first, as real processes: up, produce, consume, restart, pipes, exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.support.services.cluster import is_alive
from tests.support.services.up import DEADLINE_S, Up, command_line, running, until

WORDS = (
    *("up", "--brokers", "2", "--controllers", "1", "--coordinators", "1", "--rack", "r1"),
    *("--rack", "r2", "--set", "zookeeper.session.timeout.ms=2000"),
    *("--set", "default.replication.factor=2", "--set", "min.insync.replicas=1"),
)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("records"), *WORDS) as up:
        yield up


@pytest.fixture
def topic(up: Up, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    created = up.run("topics", "create", name, "--partitions", "2")
    assert created.returncode == 0, created.stderr
    return name


def test_defect_22_produce_to_an_unknown_topic_is_an_error_without_any_line(up: Up) -> None:
    refused = up.run("produce", "nope", stdin="")
    assert refused.returncode == 1
    assert "error 40403" in refused.stderr
    assert "what to do: see `leadline topics list`" in refused.stderr


def test_defect_22_produce_to_an_unknown_partition_is_an_error(up: Up, topic: str) -> None:
    refused = up.run("produce", topic, "--partition", "9", stdin="")
    assert refused.returncode == 1
    assert "there is no 9" in refused.stderr
    assert up.run("produce", topic, stdin="").returncode == 0


def test_defect_22_headers_and_compression_go_in_and_come_out(up: Up, topic: str) -> None:
    words = ("--partition", "0", "--header", "trace=7", "--header", "via=cli")
    sent = up.ask("produce", topic, "-", *words, "--compression", "zstd", stdin="one\n" * 500)
    assert sent["acknowledged"] == 500
    shown = up.run("consume", topic, "--headers", "--max", "1")
    assert shown.stdout == "trace=7,via=cli\tone\n"
    assert up.run("consume", topic, "--max", "1").stdout == "one\n"
    row = json.loads(up.run("consume", topic, "--json", "--max", "1").stdout)
    assert row["headers"] == [{"name": "trace", "value": "7"}, {"name": "via", "value": "cli"}]
    [log] = (up.data_dir / "broker-1").glob(f"**/*{topic}-0*/*.log")
    assert log.stat().st_size < 2_000
    assert up.run("produce", topic, "--compression", "fast").returncode == 2
    assert up.run("produce", topic, "--header", "nothing").returncode == 2


def test_defect_22_consume_begins_at_a_time(up: Up, topic: str) -> None:
    assert up.ask("produce", topic, "-", "--partition", "0", stdin="old\n")["acknowledged"] == 1
    assert up.run("consume", topic, "--from", "2020-01-31").stdout == "old\n"
    assert up.run("consume", topic, "--from", "2999-01-01T00:00:00+01:00").stdout == ""
    assert up.run("consume", topic, "--from", "1969-12-31T23:59:59.999").stdout == "old\n"
    assert up.run("consume", topic, "--partition", "0", "--from", "1").stdout == ""
    assert up.run("consume", topic, "--from", "soon").returncode == 2
    assert up.run("consume", topic, "--from", "2020-01-31", "--group", "g").returncode == 2


def test_defect_18_consume_reads_from_the_replica_of_its_rack(up: Up, topic: str) -> None:
    def served(broker: int) -> float:
        url = next(row["url"] for row in up.document["brokers"] if row["id"] == broker)
        metrics = subprocess.run(
            ["curl", "-s", f"{url}/metrics"], capture_output=True, text=True, check=True
        ).stdout
        rows = [line for line in metrics.splitlines() if _FETCHES in line and line[0] != "#"]
        return sum(float(row.rpartition(" ")[2]) for row in rows)

    rows = up.ask("topics", "describe", topic)["partitions"]
    follower = next(row for row in rows if row["leader"] == 1)
    number = str(follower["partition"])
    until(
        lambda: len(up.ask("topics", "describe", topic)["partitions"][int(number)]["isr"]) == 2,
        "the follower is in sync",
    )
    up.ask("produce", topic, "-", "--partition", number, stdin="near\n")
    before = served(1), served(2)
    words = ("--partition", number, "--replica", "any", "--rack", "r2")
    assert up.run("consume", topic, *words).stdout == "near\n"
    assert served(1) == before[0]
    assert served(2) > before[1]
    assert up.run("consume", topic, "--rack", "r2").returncode == 2


_FETCHES = "_fetches_total"


def test_defect_22_pipes_get_whole_lines_at_any_width(up: Up) -> None:
    narrow = {**os.environ, "COLUMNS": "80"}
    words = command_line("configs", "describe", "--data-dir", str(up.data_dir))
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=narrow)
    name = "replica.alter.log.dirs.throttle" if "replica.alter" in done.stdout else "min.insync"
    [row] = [line for line in done.stdout.splitlines() if f"{name}" in line][:1]
    assert row.count("│") == 7
    names = {row["name"] for row in up.ask("configs", "describe")["configs"]}
    assert all(any(f" {name} " in line for line in done.stdout.splitlines()) for name in names)
    url = up.document["brokers"][1]["url"]
    words = command_line("brokers", "--bootstrap", url)
    shown = subprocess.run(words, capture_output=True, text=True, check=True, env=narrow).stdout
    assert url in shown


def test_defect_22_a_terminal_breaks_no_word(up: Up) -> None:
    """A pseudo-terminal of 40 columns: addresses and names are longer than a column may be."""
    import_pty = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    narrow = {**os.environ, "COLUMNS": "40", "LINES": "20", "TERM": "dumb"}
    words = command_line("brokers", "--data-dir", str(up.data_dir))
    done = subprocess.run(
        [words[0], "-c", import_pty, *words], capture_output=True, text=True, check=True, env=narrow
    )
    assert up.document["brokers"][0]["url"] in done.stdout


def test_defect_22_suggestions_are_for_near_misses(up: Up) -> None:
    near = up.run("configs", "describe", "log.retention.mss").stderr
    assert "did you mean log.retention.ms?" in near
    for words in (
        ("configs", "describe", "colour"),
        ("configs", "set", "foo.bar=1"),
        ("broker", "--set", "foo.bar=1"),
        ("frobnicate",),
        ("up", "--zebra"),
    ):
        done = subprocess.run(command_line(*words), capture_output=True, text=True, check=False)
        assert done.returncode in {1, 2}
        assert "did you mean" not in done.stderr.lower()


def test_defect_22_what_to_do_says_something_or_is_left_out(up: Up) -> None:
    refused = up.run("topics", "create", "bad name")
    assert refused.returncode == 1
    assert "what to do" not in refused.stderr


def test_defect_22_the_lag_is_watched_through_a_pipe(up: Up, topic: str) -> None:
    up.ask("produce", topic, "-", stdin="one\n")
    assert up.run("consume", topic, "--group", "watched").returncode == 0
    words = command_line("groups", "lag", "watched", "--watch", "--interval", "0.1")
    with subprocess.Popen(
        [*words, "--data-dir", str(up.data_dir)], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        try:
            assert sum("Lag of watched" in _line(watching.stdout) for _ in range(40)) >= 2
        finally:
            _interrupt(watching)


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C; a process that does not end then is killed, or leaving its block would hang."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(DEADLINE_S)
    finally:
        process.kill()


def _line(stream: IO[str]) -> str:
    return stream.readline()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_defect_22_a_group_waits_out_an_outage_and_brokers_are_restarted(tmp_path: Path) -> None:
    words = ("up", "--brokers", "1", "--controllers", "1", "--coordinators", "1")
    settings = ("zookeeper.session.timeout.ms=2000", "default.replication.factor=1")
    with running(tmp_path, *words, *(w for s in settings for w in ("--set", s))) as up:
        assert up.run("topics", "create", "t").returncode == 0
        up.ask("produce", "t", "-", stdin="before\n")
        follow = command_line("consume", "t", "--group", "g", "--follow", "--data-dir")
        notes = tmp_path / "notes"
        with (
            notes.open("w") as errors,
            subprocess.Popen(
                [*follow, str(tmp_path)], stdout=subprocess.PIPE, stderr=errors, text=True
            ) as consumer,
        ):
            assert consumer.stdout is not None
            try:
                assert consumer.stdout.readline() == "before\n"
                pid = up.file()["brokers"][0]["pid"]
                os.kill(pid, signal.SIGKILL)
                until(lambda: "waiting: error" in notes.read_text(), "the consumer waits")
                assert consumer.poll() is None
                advice = up.run("doctor").stdout
                assert f"`leadline brokers restart 1 --data-dir {tmp_path}`" in advice
                restarted = up.ask("brokers", "restart", "1")
                assert restarted == {"id": 1, "pid": up.file()["brokers"][0]["pid"]}
                assert restarted["pid"] != pid
                until(lambda: up.run("produce", "t", stdin="after\n").returncode == 0, "produced")
                assert consumer.stdout.readline() == "after\n"
            finally:
                _interrupt(consumer)
            assert consumer.returncode == 0
        held = up.run("brokers", "restart", "1")
        assert held.returncode == 1
        assert "--force" in held.stderr
        assert up.file()["brokers"][0]["pid"] == restarted["pid"]
        again = up.ask("brokers", "restart", "1", "--force")
        assert again["pid"] != restarted["pid"]
        assert not is_alive(restarted["pid"])
        assert up.run("brokers", "restart", "7").returncode == 2
    alone = up.run("brokers", "restart", "1")
    assert alone.returncode == 1
    assert f"no `leadline up` runs in {tmp_path}" in alone.stderr


def test_defect_22_up_tells_what_it_starts_and_listens_on_fixed_ports(tmp_path: Path) -> None:
    base = free_base()
    words = ("up", "--brokers", "1", "--controllers", "1", "--coordinators", "1")
    command = [*command_line(*words), "--port-base", str(base), "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said: list[str] = []
            while not (said and said[-1].startswith("Ready.")):
                said.append(process.stdout.readline())
                assert said[-1], "it ended before it was ready"
            again = [*command[:-1], str(tmp_path / "other")]
            taken = subprocess.run(again, capture_output=True, text=True, check=False)
        finally:
            process.send_signal(signal.SIGINT)
            _, progress = process.communicate(timeout=DEADLINE_S)
    assert f"export LEADLINE_BOOTSTRAP=http://127.0.0.1:{base + 1}\n" in "".join(said)
    assert progress.startswith(f"starting ZooKeeper at 127.0.0.1:{base}\n")
    assert "starting controller-1, broker-1, coordinator-1\n" in progress
    document = json.loads((tmp_path / "cluster.json").read_text())
    ports = {kind: document[kind][0]["url"] for kind in ("controllers", "coordinators")}
    assert ports["controllers"].endswith(f":{base + 101}")
    assert ports["coordinators"].endswith(f":{base + 201}")
    assert taken.returncode == 1
    assert "is in use: choose another --port-base" in taken.stderr


def free_base() -> int:
    """Return a base of which all ports of a small cluster are free."""
    for base in range(20_000, 32_000, 300):
        try:
            for port in (base, base + 1, base + 101, base + 201):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return base
    raise AssertionError("no ports are free")


def test_defect_22_the_shell_completes_commands_and_options() -> None:
    def completed(line: str) -> list[str]:
        words = line.split(" ")
        environment = {
            **os.environ,
            "_LEADLINE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
        command = command_line()
        program = [command[0], "-c", "from leadline_cli.main import app; app(prog_name='leadline')"]
        done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
        return done.stdout.split()

    assert completed("leadline to") == ["topics"]
    assert completed("leadline topics cr") == ["create"]
    assert completed("leadline consume t --repl") == ["--replica"]


def test_sigterm_ends_the_input_and_what_was_read_is_delivered(up: Up, topic: str) -> None:
    command = [*command_line("produce", topic, "--json"), "--data-dir", str(up.data_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdin is not None
        one.stdin.write("first\nsecond\n")
        one.stdin.flush()
        until(lambda: len(up.run("consume", topic).stdout.split()) == 2, "both lines are there")
        one.terminate()
        output, _ = one.communicate(timeout=DEADLINE_S)

    assert one.returncode == 0
    assert json.loads(output) == {"acknowledged": 2, "refused": 0, "unknown": 0}


def test_sigterm_commits_what_a_member_has_printed_and_leaves_the_group(up: Up, topic: str) -> None:
    up.ask("produce", topic, "-", stdin="first\nsecond\n")
    command = [*command_line("consume", topic, "--group", "ended", "--follow")]
    with subprocess.Popen(
        [*command, "--data-dir", str(up.data_dir)], stdout=subprocess.PIPE, text=True
    ) as member:
        assert member.stdout is not None
        assert {_line(member.stdout), _line(member.stdout)} == {"first\n", "second\n"}
        member.terminate()
        member.communicate(timeout=DEADLINE_S)

    assert member.returncode == 0
    described = up.ask("groups", "describe", "ended")
    assert described["members"] == []
    assert up.run("consume", topic, "--group", "ended").stdout == ""

"""The exit codes of docs/command-line.md, for every command: 0, 1 refused, 2 usage, 3 unknown."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from typer.testing import CliRunner

from leadline_cli.main import SUBCOMMANDS, app, load
from leadline_client.retry import RetryPolicy
from tests.unit.client.standin import StandInCluster

NOBODY = "http://127.0.0.1:1"
LOCAL = {
    "up",
    "demo",
    "doctor",
    "host",
    "zookeeper",
    "controller",
    "broker",
    "coordinator",
    "credentials",
    "spark",
}
ARGUMENTS = {
    "audit": [],
    "brokers": [],
    "brokers can-stop": ["1"],
    "brokers drain": ["1"],
    "brokers list": [],
    "cluster roll": ["--only", "broker", "--restart-command", "true"],
    "configs describe": [],
    "configs set": ["log.retention.ms=1"],
    "configs unset": ["log.retention.ms"],
    "brokers forget": ["1"],
    "consume": ["t"],
    "elect": ["preferred"],
    "explain": ["t", "0"],
    "failed-brokers": [],
    "groups delete": ["g", "--yes"],
    "groups describe": ["g"],
    "groups delete-offsets": ["g", "--yes"],
    "groups evict": ["g", "m"],
    "groups lag": ["g"],
    "groups list": [],
    "groups offsets": ["g"],
    "groups rebalance": ["g"],
    "groups reset": ["g", "--to", "latest", "--yes"],
    "metadata": [],
    "partitions add": ["t", "3"],
    "partitions remove": ["t", "2", "--yes"],
    "plan": ["balance"],
    "produce": ["t"],
    "reassign cancel": ["t-0"],
    "reassign list": [],
    "tasks cancel": ["1"],
    "tasks list": [],
    "tasks status": ["1"],
    "tasks throttle": ["1", "none"],
    "topics create": ["t"],
    "topics delete": ["t", "--yes"],
    "topics describe": ["t"],
    "topics list": [],
    "topics offsets": ["t"],
    "users create": ["u"],
    "users delete": ["u", "--yes"],
    "users grant": ["u", "--role", "viewer"],
    "users list": [],
    "users quotas": ["u", "--requests", "5"],
    "users revoke": ["u", "--role", "viewer"],
    "users revoke-token": ["u", "i"],
    "users token": ["u"],
}


def leaves(name: str, command: Any) -> Iterator[str]:
    """Every command that can run, by its words."""
    children = getattr(command, "commands", {})
    if not children or command.invoke_without_command:
        yield name
    for child, one in children.items():
        yield from leaves(f"{name} {child}", one)


EVERY = [words for name in SUBCOMMANDS for words in leaves(name, load(name))]


@pytest.mark.parametrize("words", EVERY)
def test_defect_22_help_ends_with_0_and_an_unknown_option_with_2(words: str) -> None:
    runner = CliRunner()
    assert runner.invoke(app, [*words.split(), "--help"]).exit_code == 0
    assert runner.invoke(app, [*words.split(), "--no-such-option"]).exit_code == 2


@pytest.mark.parametrize("words", sorted(ARGUMENTS))
def test_defect_22_an_unreachable_cluster_ends_every_command_with_1(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = RetryPolicy(timeout_s=0.2, first_contact_s=0.01)
    monkeypatch.setattr("leadline_cli.admin.RETRY_POLICY", hasty)
    monkeypatch.setattr("leadline_cli.commands.produce.RETRY_POLICY", hasty)
    arguments = [*words.split(), *ARGUMENTS[words], "--bootstrap", NOBODY]
    ended = CliRunner().invoke(app, arguments, input="line\n")
    assert ended.exit_code == 1, ended.output
    assert "error 50361: no" in ended.stderr


@pytest.mark.parametrize("words", ["topics list", "doctor", "produce t", "groups list"])
@pytest.mark.parametrize(
    "address",
    ["host:port", "http://h:99999", "http://[::1", "http://", "ftp://h", ",", "h?x", "a b"],
)
def test_an_address_that_no_broker_can_have_ends_with_2(words: str, address: str) -> None:
    """One was tried for a while as if it were down; `doctor` failed with a traceback."""
    arguments = [*words.split(), "--bootstrap", f"{NOBODY},{address}" if address != "," else ","]
    ended = CliRunner().invoke(app, arguments, input="line\n")
    assert ended.exit_code == 2, ended.output
    assert "--bootstrap" in ended.stderr


READS = {
    "audit",
    "brokers can-stop",
    "brokers list",
    "configs describe",
    "consume",
    "explain",
    "failed-brokers",
    "metadata",
    "reassign list",
    "tasks list",
    "tasks status",
    "topics describe",
    "topics list",
    "topics offsets",
    "users list",
}


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that closes each connection once it has a request."""

    class Silent(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silent) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("words", [*sorted(READS), "topics delete", "users create"])
def test_only_the_outcome_of_a_change_can_be_unknown(
    words: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that gets 3 must look before it repeats, which a read needs not."""
    hasty = RetryPolicy(timeout_s=0.2, first_contact_s=0.01)
    monkeypatch.setattr("leadline_cli.admin.RETRY_POLICY", hasty)
    arguments = [*words.split(), *ARGUMENTS[words], "--json", "--bootstrap", silent]
    ended = CliRunner().invoke(app, arguments)
    error = json.loads(ended.stderr)
    assert error["error_code"] == 50454
    expected = (1, "refused") if words in READS else (3, "unknown")
    assert (ended.exit_code, error["outcome"]) == expected
    assert ("look before" in error["advice"]) is (words not in READS)


def test_the_table_names_commands_that_exist_and_few_are_missing() -> None:
    asked = {words for words in EVERY if words.split()[0] not in LOCAL}
    assert set(ARGUMENTS) <= asked
    others = {
        "brokers restart",
        "close-session",
        "cluster backup",
        "cluster init",
        "cluster restore",
        "cluster survey",
        "users create-admin",
        *REASSIGNMENTS,
    }
    assert asked - set(ARGUMENTS) == others, "these need a cluster on this machine, or a file"


REASSIGNMENTS = {f"reassign {verb}" for verb in ("cancel-partition", "start", "status", "throttle")}


def test_defect_22_a_lost_answer_ends_with_3_and_a_refusal_with_1() -> None:
    with StandInCluster(brokers=1, partitions=1).running() as cluster:
        where = ["--bootstrap", cluster.bootstrap[0]]
        assert CliRunner().invoke(app, ["topics", "create", "doubtful", *where]).exit_code == 3
        assert CliRunner().invoke(app, ["topics", "describe", "nope", *where]).exit_code == 1
        assert CliRunner().invoke(app, ["topics", "describe", "t", *where]).exit_code == 0
        unknown = CliRunner().invoke(app, ["produce", "nope", *where], input="")
        assert unknown.exit_code == 1
        assert "error 40403" in unknown.stderr
        elsewhere = CliRunner().invoke(app, ["produce", "t", "--partition", "5", *where], input="")
        assert elsewhere.exit_code == 1


def lost_output(*, full: bool) -> IO[bytes]:
    """Return a file on a disk that is full, or a pipe that nobody reads."""
    if full:
        return Path("/dev/full").open("wb")
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "wb")


@pytest.mark.parametrize("words", [["produce", "t", "--json"], ["topics", "list"]])
@pytest.mark.parametrize("full", [True, False])
def test_a_result_that_cannot_be_printed_ends_with_3(words: list[str], full: bool) -> None:
    """A script that repeats after 1 would produce the line again."""
    with (
        StandInCluster(brokers=1, partitions=1).running() as cluster,
        lost_output(full=full) as lost,
    ):
        command = [sys.executable, "-m", "leadline_cli", *words, "--bootstrap"]
        ended = subprocess.run(
            [*command, cluster.bootstrap[0]],
            stdout=lost,
            stderr=subprocess.PIPE,
            input=b"line\n",
            check=False,
        )
        stored = cluster.values(0)
    assert ended.returncode == 3
    assert ended.stderr.startswith(b"error: cannot write the result (")
    assert ended.stderr.count(b"\n") == 1
    assert stored == ([b"line"] if words[0] == "produce" else [])


@pytest.mark.parametrize("words", [["produce", "t"], ["topics", "delete", "t"]])
def test_a_closed_standard_input_is_an_empty_one(words: list[str]) -> None:
    """A service manager may start a command so."""
    with StandInCluster(brokers=1, partitions=1).running() as cluster:
        command = [sys.executable, "-m", "leadline_cli", *words, "--bootstrap"]
        ended = subprocess.run(
            ["sh", "-c", 'exec "$@" <&-', "sh", *command, cluster.bootstrap[0]],
            capture_output=True,
            check=False,
        )
    assert ended.returncode == (0 if words[0] == "produce" else 1)
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("words", [["consume", "t"], ["topics", "list", "--json"]])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_outputs_take_what_is_printed(words: list[str], closed: str) -> None:
    with StandInCluster(brokers=1, partitions=1).running() as cluster:
        command = [sys.executable, "-m", "leadline_cli", *words, "--bootstrap"]
        ended = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *command, cluster.bootstrap[0]],
            capture_output=True,
            check=False,
        )
    assert ended.returncode == 0
    assert b"Traceback" not in ended.stderr


def test_what_the_encoding_of_a_terminal_lacks_is_escaped() -> None:
    """Names of racks and groups may have any letters."""
    command = [sys.executable, "-m", "leadline_cli", "brokers", "list", "--bootstrap"]
    with StandInCluster(brokers=1, partitions=1).running() as cluster:
        cluster.racks[1] = "caf\u00e9 \u4e2d"
        ended = subprocess.run(
            [*command, *cluster.bootstrap],
            capture_output=True,
            env=os.environ | {"PYTHONIOENCODING": "iso-8859-1"},
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert b"caf\xe9 \\u4e2d" in ended.stdout


@pytest.mark.parametrize("full", [True, False])
def test_messages_that_cannot_be_printed_change_no_exit_code(full: bool) -> None:
    """The disk of the log was full: work ended in the middle, and with 1 whatever came of it."""
    with (
        StandInCluster(brokers=1, partitions=1).running() as cluster,
        lost_output(full=full) as lost,
    ):
        command = [sys.executable, "-m", "leadline_cli"]
        where = ["--bootstrap", cluster.bootstrap[0]]
        codes = [
            subprocess.run([*command, *words, *where], stderr=lost, check=False).returncode
            for words in (
                ["topics", "describe", "nope"],
                ["topics", "--no-such-option"],
                ["produce", "t", "--json"],
                ["topics", "create", "doubtful"],
            )
        ]
    assert codes == [1, 2, 0, 3]

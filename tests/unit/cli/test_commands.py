"""Admin commands: exit codes, JSON for scripts, advice for people."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from leadline_cli.admin import RETRY_POLICY
from leadline_cli.disk_space import has_little_space
from leadline_cli.main import app
from leadline_client import batches
from leadline_client.errors import ERRORS_BY_CODE, NotEnoughReplicas
from tests.support.left_out import MARK
from tests.unit.client.standin import StandInCluster

NOBODY = "http://127.0.0.1:1,http://127.0.0.1:2"


@pytest.fixture
def cluster() -> Iterator[StandInCluster]:
    with StandInCluster(brokers=2, partitions=2).running() as running:
        yield running


def leadline(cluster: StandInCluster, *words: str, stdin: str | None = None) -> Result:
    arguments = [*words, "--bootstrap", ",".join(cluster.bootstrap)]
    return CliRunner().invoke(app, arguments, input=stdin)


def test_lines_go_in_and_come_out_in_order(cluster: StandInCluster) -> None:
    lines = "".join(f"line {number}\n" for number in range(100))
    sent = leadline(cluster, "produce", "t", "-", "--partition", "1", "--json", stdin=lines)
    assert sent.exit_code == 0
    assert json.loads(sent.stdout) == {"acknowledged": 100, "refused": 0, "unknown": 0}
    read = leadline(cluster, "consume", "t", "--partition", "1")
    assert read.stdout == lines


def test_consume_as_json_from_an_offset_up_to_a_number(cluster: StandInCluster) -> None:
    leadline(cluster, "produce", "t", "-", "--key-separator", ":", stdin="k:v\n" * 9)
    partition = "0" if cluster.values(0) else "1"
    words = ("consume", "t", "--partition", partition, "--from", "4", "--max", "2", "--json")
    rows = [json.loads(line) for line in leadline(cluster, *words).stdout.splitlines()]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (4, "k", "v"),
        (5, "k", "v"),
    ]


def test_tables_and_json_say_the_same(cluster: StandInCluster) -> None:
    described = json.loads(leadline(cluster, "topics", "describe", "t", "--json").stdout)
    assert [row["leader"] for row in described["partitions"]] == [1, 2]
    assert "id-1" in leadline(cluster, "topics", "describe", "t").stdout
    listed = json.loads(leadline(cluster, "topics", "list", "--json").stdout)
    assert listed["topics"][0]["partitions"] == 2
    brokers = json.loads(leadline(cluster, "brokers", "--json").stdout)
    assert [row["leads"] for row in brokers["brokers"]] == [1, 1]
    metadata = json.loads(leadline(cluster, "metadata", "--json").stdout)
    assert metadata == cluster.metadata()


def test_a_refusal_ends_with_1_and_says_code_message_and_what_to_do(
    cluster: StandInCluster,
) -> None:
    ended = leadline(cluster, "topics", "describe", "nowhere")
    assert ended.exit_code == 1
    assert "error 40403: topic 'nowhere' does not exist" in ended.stderr
    assert "what to do: see `leadline topics list`" in ended.stderr


@pytest.mark.parametrize("words", [["brokers"], ["produce", "t"], ["groups", "list"]])
def test_a_cluster_that_is_not_there_is_told_of_with_its_addresses(words: list[str]) -> None:
    ended = CliRunner().invoke(app, [*words, "--bootstrap", NOBODY], input="line\n")
    assert ended.exit_code == 1
    assert "error 50361: " in ended.stderr
    assert "what to do: start the cluster (`leadline up`)" in ended.stderr


def test_a_cluster_that_never_answered_is_given_up_before_a_failover_is() -> None:
    assert RETRY_POLICY.first_contact_s < 2
    assert RETRY_POLICY.timeout_s > 10


def test_an_unknown_outcome_ends_with_3_and_says_so_in_json(cluster: StandInCluster) -> None:
    ended = leadline(cluster, "topics", "create", "doubtful", "--json")
    assert ended.exit_code == 3
    assert json.loads(ended.stderr)["outcome"] == "unknown"


def test_lines_that_failed_are_counted_by_outcome(cluster: StandInCluster) -> None:
    cluster.partitions[0].faults.append(NotEnoughReplicas(""))
    cluster.partitions[0].faults.append("append, then hang up")
    words = ("produce", "t", "-", "--partition", "0", "--acks", "1", "--json")
    ended = leadline(cluster, *words, stdin="once\n")
    assert ended.exit_code == 3
    assert json.loads(ended.stdout) == {"acknowledged": 0, "refused": 0, "unknown": 1}


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t", "--from", "yesterday"],
        ["produce", "t", "/no/such/file"],
        ["topics", "create", "t", "--assignment", "1:x"],
        ["topics", "create", "t", "--config", "retention.ms"],
        ["elect", "preferred", "no-number-"],
        ["elect", "sometimes"],
        ["up", "--set", "no.such.setting=1"],
        ["up", "--set", "log.level=loud"],
        ["up", "--set", "listen.port=9092"],
        ["up", "--set", "zookeeper.connect=127.0.0.1:2181"],
        ["audit", "--since", "yesterday"],
        ["topics", "offsets", "t", "--at", "soon"],
        ["groups", "reset", "g", "--to", "now"],
        ["broker", "--set", "broker.id=1", "--set", "nonsense"],
        ["nonsense"],
    ],
)
def test_wrong_usage_ends_with_2(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


def test_a_port_that_is_taken_ends_a_service_with_a_reason() -> None:
    pairs = ["broker.id=1", "log.dir=x"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pairs.append(f"listen.port={port}")
        words = [word for pair in pairs for word in ("--set", pair)]
        # In a process of its own, whose logging it may configure.
        command = [sys.executable, "-m", "leadline_cli.service", "broker", *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_directory_that_zookeeper_cannot_have_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = ["zookeeper", "--data-dir", str(tmp_path / "file"), "--port", "1"]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 1
    assert f"cannot use {tmp_path / 'file'} (File exists)" in str(ended.exception) + ended.stderr


def test_without_a_cluster_it_is_said_how_to_name_one(tmp_path: object) -> None:
    ended = CliRunner().invoke(app, ["brokers", "--data-dir", str(tmp_path)])
    assert ended.exit_code == 2
    assert "--bootstrap" in ended.stderr


def test_a_damaged_cluster_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    for words in (["brokers"], ["doctor"], ["produce", "t"]):
        ended = CliRunner().invoke(app, [*words, "--data-dir", str(tmp_path)])
        assert ended.exit_code == 2
        assert "cannot be read" in ended.stderr


def test_brokers_are_listed_beside_a_controller_that_names_no_releases(
    cluster: StandInCluster,
) -> None:
    listed = json.loads(leadline(cluster, "brokers", "--json").stdout)
    assert [row["release"] for row in listed["brokers"]] == ["", ""]


def test_the_doctor_finds_what_is_wrong(cluster: StandInCluster) -> None:
    ended = leadline(cluster, "doctor", "--json")
    assert ended.exit_code == 1
    findings = {one["check"]: one for one in json.loads(ended.stdout)["findings"]}
    assert not findings["active controller"]["ok"]
    assert findings["active controller"]["advice"]
    assert findings["active controller"]["id"] == "no-active-controller"
    assert findings["active controller"]["runbook"] == "docs/runbooks.md#no-active-controller"
    assert findings["partitions with a leader"]["id"] == ""
    assert findings["partitions with a leader"]["ok"]
    assert findings["Python 3.11 or newer"]["ok"]


def test_the_doctor_prints_the_runbook_of_each_problem(cluster: StandInCluster) -> None:
    named = set(re.findall(r"\(docs/runbooks\.md#([\w-]+)\)", leadline(cluster, "doctor").stdout))
    findings = json.loads(leadline(cluster, "doctor", "--json").stdout)["findings"]
    assert named == {one["id"] for one in findings if one["id"]}
    assert named
    assert all(one["id"] for one in findings if one["advice"])


def test_the_doctor_without_a_cluster_says_so(tmp_path: object) -> None:
    ended = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path), "--json"])
    assert ended.exit_code == 1
    wrong = [one["check"] for one in json.loads(ended.stdout)["findings"] if not one["ok"]]
    assert "a cluster" in wrong


def test_every_error_has_an_outcome_that_maps_to_an_exit_code() -> None:
    assert {error.outcome for error in ERRORS_BY_CODE.values()} == {"refused", "unknown"}


def test_what_is_no_text_is_an_error_in_names_and_goes_into_records_as_it_is(
    cluster: StandInCluster,
) -> None:
    not_utf8 = os.fsdecode(b"\xff")
    named = leadline(cluster, "topics", "describe", not_utf8)
    assert (named.exit_code, named.stderr) == (2, "error: an argument is not valid UTF-8\n")
    words = ("--partition", "0", "--key-separator", not_utf8)
    given = ["produce", "t", *words, "--bootstrap", cluster.bootstrap[0]]
    sent = CliRunner().invoke(app, [*given, "--header", f"n={not_utf8}"], input=b"k\xffv\n")
    assert sent.exit_code == 0, sent.output
    [record] = batches.decode(bytes(cluster.partitions[0].log))
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("n", b"\xff"),))
    refused = CliRunner().invoke(app, [*given, "--header", f"{not_utf8}=v"], input=b"k\xffv\n")
    assert refused.exit_code == 1
    assert "0 acknowledged, 1 refused, 0 unknown" in refused.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"partitions": [], "partitions": [{"topic": "t"}]}', "'partitions' twice"),
        ('{"partitions": [{"topic": "t", "topic": "u"}]}', "'topic' twice"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_reassignment_that_can_be_read_in_two_ways_or_in_none_is_refused(
    text: str, found: str, tmp_path: Path
) -> None:
    """Of two lists of partitions that somebody had put together, the first was ignored."""
    file = tmp_path / "moves.json"
    file.write_text(text)
    ended = CliRunner().invoke(app, ["reassign", "start", str(file), "--bootstrap", NOBODY])
    assert (ended.exit_code, found in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("through", ["file", "pipe"])
def test_a_reassignment_is_read_in_any_encoding_of_unicode(
    encoding: str, through: str, tmp_path: Path
) -> None:
    """Editors and shells of some systems write a mark before UTF-8, or UTF-16."""
    file = tmp_path / "moves.json"
    file.write_bytes('{"partitions": [{"topic": "t"}]}'.encode(encoding))
    name, given = (str(file), None) if through == "file" else ("-", file.read_bytes())
    ended = CliRunner().invoke(app, ["reassign", "start", name, "--bootstrap", NOBODY], input=given)
    assert (ended.exit_code, "error 50361" in ended.stderr) == (1, True), ended.stderr


def test_the_doctor_checks_every_disk_below_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper's data had a full disk of its own, and the doctor found enough space."""
    other = Path("/dev/shm")  # noqa: S108 - nothing is written there
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"{MARK}: there is no second disk")
    (tmp_path / "broker-1").mkdir()
    for name in ("zookeeper-1", "zookeeper-2"):
        (tmp_path / name).symlink_to(other)

    def usage(path: Path) -> SimpleNamespace:
        is_full = path.stat().st_dev == other.stat().st_dev
        return SimpleNamespace(total=1 << 40, used=0, free=0 if is_full else 1 << 40)

    monkeypatch.setattr("leadline_cli.disk_space.shutil.disk_usage", usage)
    ended = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path), "--json"])
    rows = [row for row in json.loads(ended.stdout)["findings"] if "disk space" in row["check"]]
    assert [(row["check"], row["ok"], row["id"]) for row in rows] == [
        ("free disk space", True, ""),
        ("free disk space of zookeeper-1", False, "disk-nearly-full"),
    ]


@pytest.mark.parametrize(
    ("total", "free", "little"),
    [
        (1 << 40, 1 << 30, True),
        (1 << 40, (1 << 30) + 1, False),
        (1 << 30, 1 << 26, True),
        (1 << 30, 1 << 28, False),
    ],
)
def test_a_small_disk_has_little_space_when_a_tenth_is_left(
    *, total: int, free: int, little: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=total, used=total - free, free=free)
    monkeypatch.setattr("leadline_cli.disk_space.shutil.disk_usage", lambda _: usage)
    assert has_little_space(tmp_path) == little


@pytest.mark.parametrize("place", ["", "below"])
def test_the_doctor_checks_the_disk_of_a_loop_of_links(tmp_path: Path, place: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    words = ["doctor", "--data-dir", str(tmp_path / "loop" / place), "--json"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 1, ended.output
    found = {row["check"]: row["found"] for row in json.loads(ended.stdout)["findings"]}
    assert found["free disk space"].endswith(f" in {tmp_path}")

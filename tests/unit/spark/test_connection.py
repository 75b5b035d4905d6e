"""How a cluster is reached, as options say it: addresses, and a token that nothing shows."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from leadline_client.security import Security
from leadline_spark.archive.sink import ArchiveWriter
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs import archive, command
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options

OWN = "of-this-test"


def connection(**given: str) -> Connection:
    return Connection.of(Options(OPTIONS, {"bootstrap": "b:1", **given}))


def test_addresses_are_urls_and_may_be_written_as_kafka_has_them() -> None:
    assert connection(bootstrap="b:1, https://c:2/").bootstrap == ("http://b:1", "https://c:2")


@pytest.mark.parametrize("address", ["http://me:hidden@b:1", "me:hidden@b:1", "b:1,hidden@c"])
def test_a_password_in_an_address_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OPTION_INVALID") as refused:
        connection(bootstrap=address)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "address", [",", "", "ht!tp:/\\x", "kafka://b:1", "b:port", "http://", "b:1 c:2", "b:1?x=1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(LeadlineSparkError, match=r"OPTION_INVALID.*bootstrap: .*no address"):
        connection(bootstrap=address)


@pytest.mark.parametrize(
    "address", ["http://[::1]:9092", "https://b", "broker_1.a-b.c:9092", "http://proxy/leadline"]
)
def test_addresses_of_all_forms_are_taken(address: str) -> None:
    assert len(connection(bootstrap=address).bootstrap) == 1


@pytest.mark.parametrize(
    ("given", "kept"), [("abc.DEF-123", "abc.DEF-123"), ("abc\n", "abc"), ("\n", None)]
)
def test_a_token_is_kept_without_its_line_end_and_not_shown(given: str, kept: str | None) -> None:
    made = connection(token=given)
    assert made.token == kept
    assert "abc" not in repr(made)


@pytest.mark.parametrize("token", ["two words", "two\r\nX-Lines: 1", "caf\xe9"])
def test_a_token_that_no_header_carries_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OPTION_INVALID") as refused:
        connection(token=token)
    assert token not in str(refused.value)


def test_the_files_are_read_where_a_task_runs(tmp_path: Path) -> None:
    file = tmp_path / "token"
    given = {"token.file": str(file), "ca.file": "", "certificate.file": ""}
    shipped = pickle.dumps(connection(**given))
    file.write_text("secret")
    assert b"secret" not in shipped
    arrived: Connection = pickle.loads(shipped)  # noqa: S301 - of this test
    assert arrived.authenticator().headers("https", "b") == {"authorization": "Bearer secret"}


def test_what_no_option_names_is_as_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "token")
    Path(file).write_text("secret")
    monkeypatch.setenv("LEADLINE_TOKEN_FILE", file)
    assert connection().authenticator().security == Security(token_file=file)
    assert connection(token=OWN).authenticator().security == Security(token=OWN)
    other = {"token.file": str(tmp_path / "other")}
    Path(other["token.file"]).write_text("other")
    assert connection(**other).authenticator().security.token_file == other["token.file"]


def test_a_token_and_its_file_conflict() -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OPTION_CONFLICT"):
        connection(token=OWN, **{"token.file": "/f"})


@pytest.mark.parametrize("name", ["ca.file", "token.file", "certificate.file"])
def test_a_file_that_cannot_be_used_is_named(name: str) -> None:
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_OPTION_INVALID.*/none cannot be used"):
        ClusterClient(connection(**{name: "/none"}))


FILES = {"ca.file": "/ca", "token.file": "/token", "certificate.file": "/own"}
JOB = ["--topics", "t", "--to", "/a", "--bootstrap", "b:1"]


def test_a_job_takes_files_and_gives_them_to_its_source_and_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEADLINE_TOKEN", OWN)
    plain = archive.parser().parse_args(JOB)
    assert command.options_of(plain) == {"bootstrap": "b:1", "token": OWN}
    words = ["--ca-file", "/ca", "--token-file", "/token", "--certificate-file", "/own"]
    options = command.options_of(archive.parser().parse_args([*JOB, *words]))
    assert options == {"bootstrap": "b:1", **FILES}
    writer = ArchiveWriter({**options, "path": "/a", "run": "1", "checkpointlocation": "/c"})
    assert writer._connection == connection(**FILES)

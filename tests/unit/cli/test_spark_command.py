"""`leadline spark`: what it runs, where, and on which Java."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from leadline_cli.cluster_file import ClusterFile, Service
from leadline_cli.commands.spark import JOBS, write_package
from leadline_cli.credentials import credentials_in
from leadline_cli.java_runtime import find_java, spark_java_home
from leadline_cli.main import app


def spark(*words: str) -> Result:
    return CliRunner().invoke(app, ["spark", *words], env={"LEADLINE_BOOTSTRAP": None})


@pytest.mark.parametrize("job", JOBS)
def test_help_is_that_of_the_job_and_tells_how_it_is_launched(job: str) -> None:
    shown = spark(job, "--help")
    assert shown.exit_code == 0
    assert "options:" in shown.stdout
    assert "--master URL" in shown.stdout


def test_a_job_is_submitted_with_its_arguments_as_they_are() -> None:
    words = ("archive", "--topics", "a,b", "--to", "/x y", "--master", "k8s://h", "--conf", "a=b c")
    shown = spark(*words, "--bootstrap", "http://b:1,http://c:2", "--print-command")
    package, submit = shown.stdout.splitlines()
    assert package == "leadline spark package leadline-spark.zip"
    parts = shlex.split(submit)
    assert Path(parts[0]).name == "spark-submit"
    job = next(part for part in parts if part.endswith("jobs/archive.py"))
    at = parts.index(job)
    assert parts[1:at] == shlex.split(
        "--master k8s://h --conf 'a=b c' --py-files leadline-spark.zip"
    )
    given = shlex.split("--topics a,b --to '/x y' --bootstrap http://b:1,http://c:2")
    assert parts[at + 1 :] == given


def test_a_job_gets_the_files_of_its_cluster_and_no_token(tmp_path: Path) -> None:
    broker = Service(1, "https://b:1", 1, ())
    ClusterFile("c", "127.0.0.1:1", (), (broker,)).write(tmp_path)
    credentials = credentials_in(tmp_path)
    credentials.directory.mkdir()
    credentials.public_authority.touch()
    credentials.admin_token.write_text("secret")
    words = ("archive", "--topics", "t", "--to", "/a", "--data-dir", str(tmp_path))
    printed = spark(*words, "--certificate-file", "/mine", "--print-command").stdout
    found = {"--ca-file": credentials.public_authority, "--token-file": credentials.admin_token}
    given = shlex.split(printed.splitlines()[1])
    for option, file in {**found, "--certificate-file": "/mine"}.items():
        assert given[given.index(option) + 1] == str(file)
    assert "secret" not in printed
    foreign = spark(*words, "--bootstrap", "https://c:1", "--print-command").stdout
    assert "--token-file" not in foreign


def test_a_token_is_no_argument_of_a_job() -> None:
    """All users of a machine see arguments."""
    ended = subprocess.run(
        [sys.executable, "-m", "leadline_spark.jobs.verify", "/a", "--token", "secret"],
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, b"unrecognized arguments: --token" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("archive", "--topics", "t", "--to", "/a"), True),
        (("replay", "/a", "--topic", "t", "--into", "u"), True),
        (("verify", "/a"), False),
        (("compact", "/a"), False),
        (("analytics", "--out", "/a"), True),
        (("analytics", "--out", "/a", "--history", "f"), False),
    ],
)
def test_the_cluster_is_found_where_a_job_needs_one(
    words: tuple[str, ...], asked: bool, tmp_path: Path
) -> None:
    missing = spark(*words, "--data-dir", str(tmp_path), "--print-command")
    assert (missing.exit_code == 2) == asked
    named = spark(*words, "--bootstrap", "http://b:1", "--print-command")
    assert "--bootstrap http://b:1" in named.stdout


def test_a_check_needs_neither_spark_nor_java(tmp_path: Path) -> None:
    checked = spark("verify", str(tmp_path))
    assert checked.exit_code == 1
    assert "[no_archive]" in checked.stdout
    program = (
        f"import sys; from leadline_spark.jobs.verify import main; main([{str(tmp_path)!r}]); "
    )
    program += "sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_package_is_enough_to_import_the_jobs(tmp_path: Path) -> None:
    package = tmp_path / "p.zip"
    write_package(package)
    with zipfile.ZipFile(package) as names:
        assert "leadline_spark/jobs/archive.py" in names.namelist()
        assert "leadline_client/wire.py" in names.namelist()
        assert not [name for name in names.namelist() if "__pycache__" in name]
    program = "import leadline_spark.jobs.archive as job; print(job.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(str(package))


@pytest.mark.parametrize(
    ("name", "reason"), [("none/p.zip", "No such file or directory"), ("", "Is a directory")]
)
def test_a_package_that_cannot_be_written_is_named_and_leaves_nothing(
    tmp_path: Path, name: str, reason: str
) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    shown = spark("package", str(directory / name))
    assert shown.exit_code == 1
    assert f"cannot write {directory / name} ({reason})" in shown.stderr
    assert [*tmp_path.rglob("*")] == [directory]


def test_spark_runs_on_the_java_of_the_machine_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert spark_java_home() == tmp_path.resolve()


def test_without_a_java_spark_runs_on_the_wheels_less_one_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    home = spark_java_home()
    assert home.is_relative_to(tmp_path)
    assert spark_java_home() == home
    assert find_java().exists()
    # The real runtime refuses the module by name, and takes a value with a blank in it.
    words = [
        "--add-modules=jdk.incubator.vector",
        "-Dx=a b",
        "-XshowSettings:properties",
        "-version",
    ]
    refused = subprocess.run([find_java(), *words], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    taken = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True
    )
    assert "x = a b" in taken.stderr


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_spark_runs_for_a_user_without_a_home_directory(tmp_path: Path, variable: str) -> None:
    (tmp_path / "file").touch()
    program = (
        "from leadline_cli.java_runtime import spark_java_home\n"
        "import subprocess\n"
        "home = spark_java_home()\n"
        "subprocess.run([home / 'bin' / 'java', '-version'], check=True)\n"
        "print(home)"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            "PATH": str(tmp_path),
            "TMPDIR": str(temporary),
            variable: str(tmp_path / "file" / "x"),
        },
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(str(temporary))
    assert not [*temporary.iterdir()], "it ends with the process"

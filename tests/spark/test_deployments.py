"""The connector on clusters of Spark's: workers are other processes, and have only pyarrow.

Their Python has PySpark and pyarrow and nothing of this repository; the package comes as a zip.
Run them by: pytest -m soak tests/spark/test_deployments.py (two minutes on a quiet machine).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from leadline_cli.commands.spark import write_package
from leadline_client.payloads import OutgoingRecord
from leadline_common.tcp_ports import free_port
from tests.spark.live import Live
from tests.support.services.up import until

SPARK_HOME = Path(pyspark.__file__).parent
PROGRAM = Path(__file__).with_name("submitted.py")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has what is installed here, but none of the members: those are links."""
    home = tmp_path_factory.mktemp("bare")
    command = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(home)]
    subprocess.run(command, check=True)
    # Files of links are not followed in a folder that itself comes by such a file.
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    bare = home / "bin" / "python"
    missing = [str(bare), "-c", "import pyarrow, pyspark, leadline_spark"]
    assert b"leadline_spark" in subprocess.run(missing, capture_output=True, check=False).stderr
    return bare


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a zip for `--py-files`."""
    target = tmp_path_factory.mktemp("zip") / "leadline_spark.zip"
    write_package(target)
    return target


@pytest.fixture
def filled(live: Live, topic: str) -> str:
    live.topic(topic, partitions=3)
    for partition in range(3):
        records = [OutgoingRecord(b"%d-%d" % (partition, n), None) for n in range(50)]
        live.send(topic, records, partition=partition)
    return topic


def environment(python: Path, folder: Path) -> dict[str, str]:
    words = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    words |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_WORKER_DIR": str(folder / "work")}
    words |= {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **words}


def submit(
    master: str, live: Live, topic: str, python: Path, package: Path, folder: Path
) -> dict[str, Any]:
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
    for name, value in SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--py-files", str(package), str(PROGRAM), live.bootstrap, topic, str(folder)]
    # Executors have the zip by --py-files; the process that plans a stream has it by the path only.
    done = subprocess.run(
        command,
        env={**environment(python, folder), "PYTHONPATH": str(package)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def expected() -> list[str]:
    return sorted(f"{partition}-{n}" for partition in range(3) for n in range(50))


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_submitted_with_a_zip(
    master: str, live: Live, filled: str, python: Path, package: Path, tmp_path: Path
) -> None:
    found = submit(master, live, filled, python, package, tmp_path)

    # What comes as a zip is not looked through for sources: hence `register`.
    assert found["before"] == "not found"
    assert found["batch"] == expected()
    assert found["stream"] == expected()


def test_a_standalone_master_and_worker(
    live: Live, filled: str, python: Path, package: Path, tmp_path: Path
) -> None:
    with standalone(python, tmp_path) as master:
        found = submit(master, live, filled, python, package, tmp_path)

    assert found["batch"] == expected()
    assert found["stream"] == expected()


@contextmanager
def standalone(python: Path, folder: Path) -> Iterator[str]:
    """Run a master and a worker; the master's URL."""
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
    with daemon("master.Master", words, python, folder):
        until(lambda: status(page) is not None, "the master answers")
        words = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
        words += ["--cores", "2", "--memory", "1g", master]
        with daemon("worker.Worker", words, python, folder):
            until(lambda: (status(page) or {}).get("aliveworkers") == 1, "the worker is known")
            yield master


@contextmanager
def daemon(name: str, words: list[str], python: Path, folder: Path) -> Iterator[None]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment(python, folder),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def status(page: int) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except OSError:
        time.sleep(0.1)
        return None

"""Kafka's jars, and those of Spark's source for it, fetched by this machine's Maven and checked.

Maven asks the registry that the machine's settings name. `pom.xml` pins what is asked for, and
`jars.sha512` has a hash for every file that it brings, so that another registry cannot bring
another Kafka. The files for Spark's source are in `peers/spark_connector`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from leadline_client.file_lock import FileLock

HERE: Final = Path(__file__).resolve().parent
SPARK_CONNECTOR: Final = HERE.parent / "spark_connector"
ARTIFACTS: Final = HERE.parents[2] / ".artifacts"
PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
FETCHED_WITHIN_S: Final = 600.0


class NotAvailable(Exception):
    """This machine cannot bring the files; the message says why in one line."""


class WrongFiles(Exception):
    """Maven brought other files than those listed; the message names them."""


def kafka_jars(artifacts: Path = ARTIFACTS, maven: str = "mvn") -> Path:
    """Return the folder with Kafka's jars, fetched once, and checked each time.

    Raises:
        NotAvailable: there is no Maven, or it finds no registry with these artifacts.
        WrongFiles: the files are not those of the list.

    """
    return _pinned_jars(HERE, "Kafka", artifacts, maven)


def spark_connector_jars(artifacts: Path = ARTIFACTS, maven: str = "mvn") -> Path:
    """Return the folder with the jars of Spark's Kafka source; see `kafka_jars`."""
    return _pinned_jars(SPARK_CONNECTOR, "Spark's Kafka source", artifacts, maven)


def _pinned_jars(pins: Path, what: str, artifacts: Path, maven: str) -> Path:
    pinned = [(pins / name).read_bytes() for name in ("pom.xml", "jars.sha512")]
    digest = hashlib.sha256(b"".join(pinned)).hexdigest()[:12]
    folder = artifacts / f"{pins.name}-{digest}"
    artifacts.mkdir(exist_ok=True)
    running = FileLock.acquire(folder.with_suffix(".lock"))  # Two runs may begin at once.
    try:
        hashes = listed(pinned[1].decode())
        if not folder.exists():
            partial = _fetched(pins / "pom.xml", what, folder.with_suffix(".partial"), maven)
            check(partial, hashes)
            partial.rename(folder)
        check(folder, hashes)
    finally:
        running.release()
    return folder


def listed(text: str) -> dict[str, str]:
    """Return the SHA-512 hashes by file name, as `sha512sum` prints them."""
    rows = (line.split() for line in text.splitlines())
    return {name: digest for digest, name in rows}


def check(folder: Path, hashes: Mapping[str, str]) -> None:
    """Compare the jars of a folder with the list.

    Raises:
        WrongFiles: a file is missing, is another, or is not in the list.

    """
    found = {
        path.name: hashlib.sha512(path.read_bytes()).hexdigest() for path in folder.glob("*.jar")
    }
    names = sorted(found.keys() | hashes.keys())
    wrong = [name for name in names if found.get(name) != hashes.get(name)]
    if wrong:
        raise WrongFiles(f"{folder.name} is not as jars.sha512 lists it: {', '.join(wrong)}")


def _fetched(pom: Path, what: str, folder: Path, maven: str) -> Path:
    program = shutil.which(maven)
    if program is None:
        raise NotAvailable("there is no Maven (mvn) on this machine")
    shutil.rmtree(folder, ignore_errors=True)
    command = [program, "--quiet", "--batch-mode", "--file", str(pom)]
    command += [f"{PLUGIN}:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(
            [*command, "-DincludeScope=runtime"],
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCHED_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotAvailable(f"Maven did not run: {problem}") from problem
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
        reason = " ".join(errors[:1]) or done.returncode
        raise NotAvailable(f"Maven did not bring {what}: {reason}")
    return folder

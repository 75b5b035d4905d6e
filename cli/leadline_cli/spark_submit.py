"""Starts Spark jobs: in this process on this machine's cores, or on a cluster.

On a cluster, the package is submitted as a zip: executors need Python and pyarrow, and nothing of
Leadline installed.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from leadline_cli.java_runtime import package_directory, spark_java_home

PACKAGES: Final = ("leadline_client", "leadline_spark")
ZIP_NAME: Final = "leadline-spark.zip"
LOCAL: Final = "local[*]"

_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Little output, and loopback only; --conf overrides them."""


def run_here(module: str, arguments: Sequence[str], master: str, conf: Sequence[str]) -> int:
    """Run a job in this process and return its exit code."""
    given = dict(setting.partition("=")[::2] for setting in conf)
    settings = [f"{name}={value}" for name, value in (_LOCAL_SETTINGS | given).items()]
    words = ["--master", master, *_conf_words(settings), "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(f'"{word}"' for word in words)
    os.environ["JAVA_HOME"] = str(spark_java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    code: int = import_module(module).main(list(arguments))
    return code


def submit_environment(package: Path) -> dict[str, str]:
    """Return the environment of spark-submit: its Java, and this Python for the driver.

    PYTHONPATH contains the package because the process that plans a stream gets no `--py-files`.
    """
    given = os.environ.get("PYTHONPATH")
    return {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **os.environ,
        "JAVA_HOME": str(spark_java_home()),
        "PYTHONPATH": os.pathsep.join([str(package), *([given] if given else [])]),
    }


def submit_command(
    module: str,
    arguments: Sequence[str],
    master: str,
    conf: Sequence[str],
    package: Path,
) -> list[str]:
    """Return the spark-submit command for a job; `package` is the zip to submit with it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the Python module {module} is not installed")
    submit = package_directory("pyspark") / "bin" / "spark-submit"
    words = ["--master", master, *_conf_words(conf), "--py-files", str(package)]
    return [str(submit), *words, spec.origin, *arguments]


def write_package(path: Path) -> None:
    """Write the zip with the modules and data files of the pipeline and the client library."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for root in map(package_directory, PACKAGES):
            for file in sorted(root.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    package.write(file, file.relative_to(root.parent))


def _conf_words(conf: Sequence[str]) -> list[str]:
    return [word for setting in conf for word in ("--conf", setting)]

"""Spark's workers with another Python than the driver's: the error says which, and what to set."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leadline_cli.java_runtime import spark_java_home
from leadline_spark import LeadlineSparkError, register

pytestmark = pytest.mark.slow

PROGRAM = """
from leadline_spark import LeadlineSparkError, register
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
read = spark.read.format("leadline").option("bootstrap", "127.0.0.1:1").option("subscribe", "t")
try:
    read.load()
except Exception as error:
    print("without register:", str(error).splitlines()[0])
try:
    register(spark)
except LeadlineSparkError as error:
    print("with register:", error)
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of the driver's version, without any package."""
    home = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    return str(home / "bin/python")


def test_defect_24_a_worker_python_without_the_package_is_named(bare: str, tmp_path: Path) -> None:
    own = {
        "PYSPARK_PYTHON": bare,
        "JAVA_HOME": str(spark_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **own},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "without register: An error occurred while calling" in done.stdout, done.stderr
    said = done.stdout.partition("with register: ")[2]
    assert said.startswith("[LEADLINE_WORKER_PYTHON]"), done.stderr
    assert f"workers run {bare}, which has no pyarrow and no leadline_spark" in said
    assert f"PYSPARK_PYTHON={sys.executable}" in said
    assert "spark.pyspark.python" in said


@pytest.mark.parametrize("kind", ["another version", "no program", "no Python"])
def test_defect_24_a_worker_python_that_cannot_run_is_named(
    kind: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = (shutil.which(f"python3.{minor}") for minor in range(8, 15))
    version = f"python3.{sys.version_info.minor}"
    another = next((path for path in others if path and not path.endswith(version)), None)
    if kind == "another version" and another is None:
        pytest.skip("this machine has one version of Python")
    worker = {"another version": another, "no program": "/nowhere/python", "no Python": "/bin/true"}
    monkeypatch.setattr(spark.sparkContext, "pythonExec", worker[kind])
    with pytest.raises(LeadlineSparkError, match="LEADLINE_WORKER_PYTHON") as raised:
        register(spark)
    assert f"workers run {worker[kind]}" in raised.value.message


def test_the_driver_s_own_python_is_accepted(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == sys.executable
    register(spark)

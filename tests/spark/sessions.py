"""How tests and benchmarks start Spark: on this machine's loopback, small and quiet."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from leadline_cli.java_runtime import spark_java_home

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.log.level": "ERROR",
    # Tables are small: compiling queries, and recording where calls are made, saves nothing.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


def local_session(folder: Path, master: str = "local[2]", **settings: str) -> SparkSession:
    """Start a session whose files are below `folder`; dots in names are written `__`."""
    # Spark would take the first python3 of the path for its workers.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(spark_java_home())
    builder = SparkSession.builder.master(master).appName("leadline")
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    builder = builder.config("spark.local.dir", str(folder / "local"))
    given = {name.replace("__", "."): value for name, value in settings.items()}
    for name, value in {**SETTINGS, **given}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

"""Explicit registration, for sessions that do not find the source by themselves."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from leadline_spark.errors import LeadlineSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED: Final = ("pyarrow", "leadline_spark")
_LOOK: Final = (
    "import sys, importlib.util as u\n"
    "print('.'.join(map(str, sys.version_info[:2])), "
    "*(name for name in sys.argv[1:] if u.find_spec(name) is None))"
)
_LOOK_S: Final = 60.0


def register(spark: SparkSession) -> None:
    """Register `format("leadline")` with a session, and change none of its settings.

    This is necessary for a package that comes by `--py-files`: Spark finds no sources in a zip.

    Raises LeadlineSparkError as `check_worker_python` does.
    """
    # Imported here, because `import leadline_spark` must not load PySpark.
    from leadline_spark.source import LeadlineDataSource  # noqa: PLC0415 - see above

    check_worker_python(spark)
    spark.dataSource.register(LeadlineDataSource)


def check_worker_python(spark: SparkSession) -> None:
    """Check that the Python of this machine's workers can run the source.

    Spark plans reads and writes in a worker on the driver's machine. Without this check a worker
    that lacks the package only shows as DATA_SOURCE_NOT_FOUND, or as a traceback of the worker.

    Raises:
        LeadlineSparkError: LEADLINE_WORKER_PYTHON; the message names the interpreters.

    """
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 - as above

    if is_remote():
        return  # The workers are the server's, and no interpreter of this machine.
    worker = spark.sparkContext.pythonExec
    if worker == sys.executable:
        return
    # A package that comes as a zip is not installed: Spark adds the zip to the workers' path.
    comes_as_zip = spark.conf.get("spark.submit.pyFiles", "") or _is_zipped()
    problem = _problem(worker, _NEEDED[:1] if comes_as_zip else _NEEDED)
    if problem is not None:
        raise LeadlineSparkError(
            "LEADLINE_WORKER_PYTHON",
            f"Spark's workers run {worker}, {problem}. The driver runs {sys.executable}, Python "
            f"{_version()}. Set PYSPARK_PYTHON={sys.executable} (or the setting "
            "spark.pyspark.python of spark-submit) before the session is created, or install "
            f"leadline-spark for {worker}.",
        )


def _problem(worker: str, needed: tuple[str, ...]) -> str | None:
    """Return what is wrong with an interpreter, None if nothing is."""
    command = [worker, "-c", _LOOK, *needed]
    try:
        found = subprocess.run(  # noqa: S603 - the interpreter that Spark runs, too
            command, capture_output=True, text=True, check=True, timeout=_LOOK_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"which cannot be run ({error})"
    version, *missing = found.stdout.split() or ["unknown"]
    if version != _version():
        return f"which is Python {version}: it must be the driver's version"
    return f"which has no {' and no '.join(missing)}" if missing else None


def _version() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _is_zipped() -> bool:
    found = importlib.util.find_spec("leadline_spark")
    return found is not None and ".zip" in (found.origin or "")

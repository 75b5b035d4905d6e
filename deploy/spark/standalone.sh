#!/usr/bin/env bash
# Archive topics by way of a standalone Spark cluster: ./standalone.sh spark://master:7077
#
# BOOTSTRAP  addresses of brokers, separated by commas
# TOPICS     names, separated by commas
# ARCHIVE    a directory that the driver and all workers see under this path, or a URI
# PYTHON     the workers' Python, with pyarrow (default: python3)
set -euo pipefail

MASTER=${1:?usage: standalone.sh spark://HOST:PORT}
: "${BOOTSTRAP:?}" "${TOPICS:?}" "${ARCHIVE:?}"
PYTHON=${PYTHON:-python3}

PACKAGE=$(mktemp -d)/leadline-spark.zip
trap 'rm -rf "$(dirname "$PACKAGE")"' EXIT
leadline spark package "$PACKAGE"
JOB=$(python3 -c 'import leadline_spark.jobs as j; print(j.__path__[0])')/archive.py

# What plans a stream runs beside the driver, and sees no --py-files: hence PYTHONPATH.
PYTHONPATH="$PACKAGE${PYTHONPATH:+:$PYTHONPATH}" spark-submit \
  --master "$MASTER" \
  --name leadline-archive \
  --py-files "$PACKAGE" \
  --total-executor-cores "${CORES:-4}" \
  --executor-memory "${MEMORY:-1g}" \
  --conf spark.pyspark.python="$PYTHON" \
  --conf spark.task.maxFailures=4 \
  "$JOB" --bootstrap "$BOOTSTRAP" --topics "$TOPICS" --to "$ARCHIVE"

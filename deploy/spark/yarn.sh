#!/usr/bin/env bash
# Archive topics with Spark on YARN: ./yarn.sh
#
# HADOOP_CONF_DIR  where YARN and HDFS are described
# BOOTSTRAP        addresses of brokers, separated by commas
# TOPICS           names, separated by commas
# ARCHIVE          hdfs://…; the driver and all nodes need libhdfs for pyarrow
# ENVIRONMENT      a packed Python environment with pyarrow (conda-pack or venv-pack), .tar.gz
set -euo pipefail

: "${HADOOP_CONF_DIR:?}" "${BOOTSTRAP:?}" "${TOPICS:?}" "${ARCHIVE:?}" "${ENVIRONMENT:?}"

PACKAGE=$(mktemp -d)/leadline-spark.zip
trap 'rm -rf "$(dirname "$PACKAGE")"' EXIT
leadline spark package "$PACKAGE"
JOB=$(python3 -c 'import leadline_spark.jobs as j; print(j.__path__[0])')/archive.py

spark-submit \
  --master yarn \
  --deploy-mode cluster \
  --name leadline-archive \
  --queue "${QUEUE:-default}" \
  --num-executors "${EXECUTORS:-2}" \
  --executor-cores 2 \
  --executor-memory "${MEMORY:-1g}" \
  --archives "$ENVIRONMENT#python" \
  --py-files "$PACKAGE" \
  --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./python/bin/python \
  --conf spark.yarn.appMasterEnv.PYTHONPATH=./leadline-spark.zip \
  --conf spark.executorEnv.PYSPARK_PYTHON=./python/bin/python \
  --conf spark.yarn.maxAppAttempts=2 \
  "$JOB" --bootstrap "$BOOTSTRAP" --topics "$TOPICS" --to "$ARCHIVE" --checkpoint "$ARCHIVE/_checkpoint"

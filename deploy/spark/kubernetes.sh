#!/usr/bin/env bash
# Archive topics with Spark on Kubernetes: ./kubernetes.sh k8s://https://HOST:PORT
#
# First: kubectl apply -f kubernetes.yaml, and an image that is built from the Dockerfile here.
#
# BOOTSTRAP  addresses of brokers that pods reach, separated by commas
# TOPICS     names, separated by commas
# ARCHIVE    a directory on the volume below, as pods see it
# IMAGE      the image
set -euo pipefail

MASTER=${1:?usage: kubernetes.sh k8s://https://HOST:PORT}
: "${BOOTSTRAP:?}" "${TOPICS:?}" "${ARCHIVE:?}" "${IMAGE:?}"
VOLUME=persistentVolumeClaim.archive

spark-submit \
  --master "$MASTER" \
  --deploy-mode cluster \
  --name leadline-archive \
  --conf spark.kubernetes.namespace="${NAMESPACE:-leadline}" \
  --conf spark.kubernetes.container.image="$IMAGE" \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName=leadline-spark \
  --conf spark.kubernetes.driver.volumes.$VOLUME.options.claimName=leadline-archive \
  --conf spark.kubernetes.driver.volumes.$VOLUME.mount.path="${MOUNT:-/archive}" \
  --conf spark.kubernetes.executor.volumes.$VOLUME.options.claimName=leadline-archive \
  --conf spark.kubernetes.executor.volumes.$VOLUME.mount.path="${MOUNT:-/archive}" \
  --conf spark.executor.instances="${EXECUTORS:-2}" \
  --conf spark.executor.memory="${MEMORY:-1g}" \
  local:///opt/leadline/jobs/archive.py \
  --bootstrap "$BOOTSTRAP" --topics "$TOPICS" --to "$ARCHIVE"

"""Prepare a pod, in its init container: its own certificates alone, and the zone of its node.

A StatefulSet gives all of its pods the same secret. This copies the files of one pod into a volume
in memory, the only one that the service sees. The zone is a label of the node, which the downward
API does not have, so the Kubernetes API is asked.

Usage: python prepare.py KIND-ID SECRETS TARGET [NODE]
"""

import json
import os
import ssl
import sys
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
COMMON = {"ca.pem", "internal-ca.pem", "clients-ca.pem"}
ZONE = "topology.kubernetes.io/zone"


def main(service: str, secrets: Path, target: Path, node: str | None) -> None:
    """Copy the files of `service`, of its kind and of all, and write `rack` if a node is named."""
    for source in sorted(secrets.iterdir()):
        if source.name.startswith(f"{service}.") or source.name.startswith(f"{service}-"):
            copy(source, target / source.name.replace(service, "service", 1))
        elif source.name in {*COMMON, f"zookeeper-{service.rpartition('-')[0]}"}:
            copy(source, target / source.name)
    if node:
        (target / "rack").write_text(zone_of(node), encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    """Copy a file, for its owner only to read."""
    target.unlink(missing_ok=True)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as file:
        file.write(source.read_bytes())


def zone_of(node: str) -> str:
    """Return the zone of a node. A node without one is an error: a guess would lose a rack."""
    address = (
        f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    )
    token = (ACCOUNT / "token").read_text(encoding="utf-8").strip()
    request = urllib.request.Request(  # noqa: S310 - the address begins with https
        f"{address}/api/v1/nodes/{node}", headers={"Authorization": f"Bearer {token}"}
    )
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:  # noqa: S310 - as above
        labels = json.load(answer)["metadata"]["labels"]
    if ZONE not in labels:
        sys.exit(f"node {node} has no label {ZONE}: label it, then start the pod again")
    return str(labels[ZONE])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), (sys.argv[4:] or [None])[0])

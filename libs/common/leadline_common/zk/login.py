"""The ZooKeeper user of a service, from its settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import structlog

from leadline_common.identity import UnusableCredentials
from leadline_common.settings import ServiceSettings
from leadline_common.zk.credentials import ZkCredentials, read_credentials
from leadline_common.zk.tls import ZkTls

logger = structlog.get_logger(__name__)


def login_of(settings: ServiceSettings) -> ZkCredentials | None:
    """Return the credentials of a service, None if `zookeeper.credentials.file` is not set.

    Raises:
        UnusableCredentials: a file cannot be read, or has another form, or the settings contradict
            each other.

    """
    path, ca = settings.zookeeper_credentials_file, settings.zookeeper_tls_ca_file
    certificate = settings.zookeeper_tls_certificate_file
    if certificate and not ca:
        raise UnusableCredentials("zookeeper.tls.certificate.file needs zookeeper.tls.ca.file")
    if ca and not path:
        raise UnusableCredentials("zookeeper.tls.ca.file needs zookeeper.credentials.file")
    if path:
        tls = ZkTls(Path(ca), Path(certificate) if certificate else None) if ca else None
        return replace(read_credentials(Path(path)), tls=tls)
    logger.warning(
        "everybody who reaches ZooKeeper can change this cluster: set zookeeper.credentials.file"
    )
    return None

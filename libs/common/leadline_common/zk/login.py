"""The ZooKeeper user of a service, from its settings."""

from __future__ import annotations

from pathlib import Path

import structlog

from leadline_common.settings import ServiceSettings
from leadline_common.zk.credentials import ZkCredentials, read_credentials

logger = structlog.get_logger(__name__)


def login_of(settings: ServiceSettings) -> ZkCredentials | None:
    """Return the credentials of a service, None if `zookeeper.credentials.file` is not set.

    Raises:
        UnusableCredentials: the file cannot be read, or has another form.

    """
    path = settings.zookeeper_credentials_file
    if path:
        return read_credentials(Path(path))
    logger.warning(
        "everybody who reaches ZooKeeper can change this cluster: set zookeeper.credentials.file"
    )
    return None

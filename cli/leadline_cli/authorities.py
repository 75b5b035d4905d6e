"""The names of a cluster's authorities, apart from what makes them: few commands need that."""

from __future__ import annotations

from typing import Final

INTERNAL: Final = "Leadline internal CA"
PUBLIC: Final = "Leadline public CA"
ZOOKEEPER: Final = "Leadline ZooKeeper CA"

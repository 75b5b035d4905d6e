"""The names of the certificate authorities of a cluster.

They are apart from `certificates.py`, which imports cryptography.
"""

from __future__ import annotations

from typing import Final

INTERNAL: Final = "Leadline internal CA"
PUBLIC: Final = "Leadline public CA"
ZOOKEEPER: Final = "Leadline ZooKeeper CA"

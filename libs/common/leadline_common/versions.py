"""Releases, and the protocol versions by which services of two releases work together.

A protocol version covers the requests between services, the values of ZooKeeper's nodes and the
files of the logs. Each service registers its release and the range of versions that it speaks, so
that a rolling upgrade can run two releases side by side. A field that older releases may ignore
needs no new version.

Version 1: everything up to now. A registration without versions speaks version 1 only.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Final, NamedTuple

import msgspec

from leadline_common.process_errors import CannotRun

FIRST_PROTOCOL: Final = 1
"""What registrations of releases before 0.2 speak, which name no version."""
OLDEST_PROTOCOL: Final = 1
"""The oldest version that this release speaks."""
NEWEST_PROTOCOL: Final = 1
"""The newest version that this release speaks."""


class IncompatibleRelease(CannotRun):
    """This release and a service that is registered speak no protocol version in common."""


class VersionedRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """What every service's registration says about versions."""

    release: str = ""
    oldest_protocol: int = FIRST_PROTOCOL
    newest_protocol: int = FIRST_PROTOCOL

    def spoken_by(self, service: str) -> SpokenVersions:
        """Return what it registers for `service`, which is its name for people."""
        return SpokenVersions(service, self.release, self.oldest_protocol, self.newest_protocol)


class SpokenVersions(NamedTuple):
    """The release of a service, and the oldest and newest protocol version that it speaks."""

    service: str
    release: str
    oldest: int
    newest: int


def own_versions(service: str) -> SpokenVersions:
    """Return what this process speaks as `service`, which is its name for people."""
    return SpokenVersions(service, current_release(), OLDEST_PROTOCOL, NEWEST_PROTOCOL)


def require_compatible(own: SpokenVersions, others: Iterable[SpokenVersions]) -> None:
    """Check that `own` speaks a version in common with each of the others.

    Raises:
        IncompatibleRelease: it does not; the message names the other service, and a way out.

    """
    for other in others:
        if own.newest < other.oldest or own.oldest > other.newest:
            raise IncompatibleRelease(
                f"{own.service} (release {own.release}) speaks protocol versions {own.oldest} to "
                f"{own.newest}, but {other.service} (release {other.release or 'unknown'}) speaks "
                f"{other.oldest} to {other.newest}: start {own.service} with a release that "
                f"speaks one of these, or bring {other.service} to such a release first"
            )


@cache
def current_release() -> str:
    """Return the release of this process."""
    return version("leadline-common")

"""What the optional packages of `leadline-client` are for.

The package alone works with the standard library. Its extras make it faster, or add what the
standard library does not have.
"""

from __future__ import annotations

from importlib.util import find_spec


class MissingExtra(ImportError):
    """A package is needed that only an extra of `leadline-client` installs."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} need an extra: pip install 'leadline-client[{extra}]'")


def installed(*packages: str) -> bool:
    """Tell whether all these packages can be imported."""
    return all(find_spec(package) is not None for package in packages)


def require_websockets() -> None:
    """Raise MissingExtra unless a member of a group can open its channel."""
    if not installed("websockets"):
        raise MissingExtra("groups", "members of consumer groups")

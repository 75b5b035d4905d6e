"""A planted mistake in the protocol, and the list of all of them in `tests/mutants`.

Each is a plausible mistake of someone who changes the protocol: it can be imported, has correct
types, and breaks one rule. The tests that it names must fail with it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[3]
LISTS: Final = ROOT / "tests/mutants"


class MutantMisplaced(Exception):
    """The text that a mutant replaces does not occur exactly once in its file."""


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mistake: `old` is replaced by `new` in `file`.

    `rule` is the rule that it breaks (R1 to R18), or the algorithm. `tests` are paths and node ids
    of pytest.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """Return the file's text with the mistake in it.

        Raises:
            MutantMisplaced: `old` does not occur exactly once.

        """
        found = text.count(self.old)
        if found != 1:
            raise MutantMisplaced(f"{self.name}: the old text occurs {found} times in {self.file}")
        return text.replace(self.old, self.new)


class _MutantList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of one file of the list."""

    mutant: list[Mutant]


def all_mutants(folder: Path = LISTS) -> list[Mutant]:
    """Return the mutants of all files, in the order of their files.

    Raises:
        msgspec.ValidationError: an entry lacks a field, or has an unknown one.

    """
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        found += msgspec.convert(entries, _MutantList).mutant
    return found

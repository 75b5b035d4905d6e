"""The tag of a state of the metadata, by which a caller asks for what has changed since.

Two states with one tag have the same content, at whichever broker or controller: the version rises
with every change that a controller publishes, and the controller epoch tells apart what two
controllers may publish under one version. It is the ETag of the document. Pure: no IO.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TAG: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,19})")


class MetadataTag(NamedTuple):
    """A state of the metadata; later states are greater."""

    controller_epoch: int
    version: int

    @classmethod
    def parse(cls, text: str) -> MetadataTag | None:
        """Read a tag; None if the text is none."""
        found = _TAG.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        """Return the tag as the document's ETag has it."""
        return f"{self.controller_epoch}-{self.version}"

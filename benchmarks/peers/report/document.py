"""The document of one run, as JSON: every sample, and what the figures depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from peers.machine import Machine
from peers.report.samples import Samples
from peers.sequences.sizes import Sizes

FORMAT: Final = 1


class Document(msgspec.Struct, frozen=True):
    """One run. Times are in UTC; `commit` ends with a `+` if the code differed from it."""

    began: str
    ended: str
    commit: str
    is_quick: bool
    kafka: str
    machine: Machine
    sizes: Sizes
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    samples: tuple[Samples, ...]
    failures: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def name(self) -> str:
        """The name of its files, which sorts by time."""
        minute = self.began[:16].replace("T", "-").replace(":", "")
        return f"{minute}-{self.commit.rstrip('+')}{'-quick' * self.is_quick}"


def encode(document: Document) -> bytes:
    """Return the content of its file."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode(content: bytes) -> Document:
    """Read a document.

    Raises:
        msgspec.ValidationError: it is not of this format.

    """
    return msgspec.json.decode(content, type=Document)


def read_all(folder: Path) -> list[Document]:
    """Return all documents of a folder, the oldest first."""
    documents = [decode(path.read_bytes()) for path in folder.glob("*.json")]
    return sorted(documents, key=lambda one: one.began)

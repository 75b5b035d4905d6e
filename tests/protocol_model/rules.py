"""The bounds of searches, and the rules of the protocol that the model can be without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen in a run of the model. Each number multiplies the states by about ten."""

    epochs: int = 2
    """Leader epochs, including the first."""
    records: int = 1
    """Records that leaders append in all."""
    crashes: int = 1
    """Power cuts in all."""
    changes: int = 1
    """ISR changes that leaders propose in all."""

    def macros(self) -> list[str]:
        """Return the definitions for Spin."""
        names = ("EPOCHS", "RECORDS", "CRASHES", "CHANGES")
        return [f"-D{name}={value}" for name, value in zip(names, astuple(self), strict=True)]

    def __str__(self) -> str:
        return (
            f"epochs {self.epochs}, records {self.records}, crashes {self.crashes}, "
            f"ISR changes {self.changes}"
        )


LATE = Bounds(epochs=3, records=1, crashes=0, changes=0)
DIVERGING = Bounds(epochs=2, records=2, crashes=0, changes=0)
CHANGING = Bounds(epochs=2, records=1, crashes=0, changes=2)
CRASHING = Bounds(epochs=1, records=2, crashes=1, changes=0)
ELECTING = Bounds(epochs=2, records=1, crashes=1, changes=0)

COMPLETE = (LATE, DIVERGING, CHANGING, CRASHING, ELECTING)
"""The bounds within which the tests search the model with all its rules."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A rule is removed: where that is searched, and what has to be found."""

    bounds: Bounds
    violates: str
    """The invariant, as docs/protocol.md names it."""
    because: str
    """A step without which the violation would not be due to this rule, as in the trail."""


LOSS = "I1"
SAME_NAME = "I3"

REMOVALS: Mapping[str, Removal] = {
    "R1": Removal(LATE, LOSS, r"broker \d fetches from broker 0 in epoch 3"),
    "R2": Removal(
        LATE, LOSS, r": end 1, .*\nbroker \d follows broker \d .* keeps its log up to 0\n"
    ),
    "R3": Removal(DIVERGING, LOSS, r"receives the late response.*\n.*truncates its log to 0$"),
    "R4": Removal(CRASHING, LOSS, r"broker \d loses power"),
    "R5": Removal(CHANGING, LOSS, r"committed at offset 0\nZooKeeper applies .* \{0, 1, 2\}$"),
    "R6": Removal(CHANGING, LOSS, r"broker 1 proposes .*\nZooKeeper applies .* \{0, 1, 2\}$"),
    "R7": Removal(CHANGING, LOSS, r"takes it for refused\n.*is committed at offset 0$"),
    "R9": Removal(CRASHING, SAME_NAME, r"broker 0 restarts\n(.*\n)*.*the leader of epoch 1"),
    "R14": Removal(CHANGING, LOSS, r"elects broker (\d) in epoch 2: the ISR is \{\1\}$"),
}
"""What the model can be without; within the same bounds it is searched with all rules, too."""

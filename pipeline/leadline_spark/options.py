"""How options are read: by one table, with defaults, types, other names and near misses.

Spark hands options over as text under names in lower case; their spelling in the table is the one
that users write and that docs/spark-options.md shows. A name that is not in the table is refused:
a misspelt `failOnDataLoss` that is passed over would be found out too late.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leadline_spark.errors import LeadlineSparkError

TEXT = "text"
NUMBER = "whole number"
FLAG = "true or false"
DURATION = "duration"
DOCUMENT = "JSON"
LIST = "list"
KINDS = (TEXT, NUMBER, FLAG, DURATION, DOCUMENT, LIST)

BATCH = "batch read"
STREAM = "stream read"
WRITE = "write"

_UNITS_MS = {"ms": 1, "s": 1_000, "sec": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000}
_UNITS_MS |= {"d": 86_400_000, "us": 0}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: what it is called, what it may be, where it counts, and what it does.

    `default` is what users would write; None means that there is none. `choices` lists the only
    values, `minimum` the least number. `aliases` are other names, Kafka's mostly.
    """

    name: str
    kind: str
    scopes: tuple[str, ...]
    meaning: str
    default: str | None = None
    minimum: int | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def near(name: str, known: list[str]) -> str:
    """Return the advice for a name that is not known: the closest one, if any is close."""
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]}?" if close else ""


class Options:
    """The options of one data source, checked on arrival. Getters take the table's spelling.

    Raises LeadlineSparkError: LEADLINE_OPTION_UNKNOWN, _INVALID or _CONFLICT (one thing said twice,
    under two names).
    """

    def __init__(self, table: tuple[Option, ...], given: Mapping[str, str]) -> None:
        self._rows = {option.name: option for option in table}
        names = {alias.lower(): row.name for row in table for alias in (row.name, *row.aliases)}
        self._texts: dict[str, str] = {}
        for raw, text in given.items():
            name = names.get(raw.lower())
            if name is None:
                raise self._unknown(raw)
            if self._texts.get(name, text) != text:
                both = f"{name} and its other name were both given, with different values."
                raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", both)
            self._texts[name] = str(text)
        for name in self._texts:
            self._check(self._rows[name])

    def __contains__(self, name: str) -> bool:
        """Tell whether an option was given, whatever its default is."""
        return name in self._texts

    def text(self, name: str) -> str | None:
        """Return the value as it was written (a choice as the table has it), or the default."""
        row, text = self._rows[name], self._texts.get(name)
        if text is None:
            return row.default
        return text.strip().lower() if row.choices else text

    def required(self, name: str) -> str:
        """Return a value that has to be given."""
        text = self.text(name)
        if text is None:
            missing = f"The option {name} is required: {self._rows[name].meaning}"
            raise LeadlineSparkError("LEADLINE_OPTION_MISSING", missing)
        return text

    def number(self, name: str) -> int | None:
        """Return a whole number, or None where there is neither value nor default."""
        text = self.text(name)
        return None if text is None else int(text)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        return (self.text(name) or "false").strip().lower() == "true"

    def duration_ms(self, name: str) -> int | None:
        """Return a duration in ms."""
        text = self.text(name)
        return None if text is None else parse_duration(text)

    def document(self, name: str) -> Any:
        """Return decoded JSON, or None."""
        text = self.text(name)
        return None if text is None else json.loads(text)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list that is separated by commas, without blanks and empty entries."""
        return tuple(filter(None, (part.strip() for part in (self.text(name) or "").split(","))))

    def _check(self, row: Option) -> None:
        text = self._texts[row.name]
        problem = _problem(row, text)
        if problem:
            message = f"{row.name} is {text!r}, which is not {problem}. {row.meaning}"
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)

    def _unknown(self, name: str) -> LeadlineSparkError:
        advice = near(name, list(self._rows))
        if name.lower().startswith("kafka."):
            advice = " It configures a Kafka client; Leadline is spoken to by HTTP." + advice
        message = f"The format leadline has no option {name}.{advice}"
        return LeadlineSparkError("LEADLINE_OPTION_UNKNOWN", message)


def parse_duration(text: str) -> int:
    """Return ms for a duration as Spark writes it: `15m`, `500ms`, `2h`; a bare number is ms.

    Raises ValueError.
    """
    match = _DURATION.fullmatch(text.strip())
    unit = match[2].lower() if match else ""
    if match is None or (unit and unit not in _UNITS_MS):
        raise ValueError(f"{text!r} is no duration such as 500ms, 30s or 15m")
    if unit == "us":
        return int(match[1]) // 1_000
    return int(match[1]) * _UNITS_MS[unit or "ms"]


def _problem(row: Option, text: str) -> str | None:
    """Say what a value should have been, or None where it is that."""
    try:
        value = _parsed(row.kind, text)
    except ValueError:
        return f"a {row.kind}" if row.kind != FLAG else FLAG
    if row.choices and text.strip().lower() not in row.choices:
        return "one of " + ", ".join(row.choices)
    if row.minimum is not None and isinstance(value, int) and value < row.minimum:
        return f"at least {row.minimum}"
    return None


def _parsed(kind: str, text: str) -> Any:
    if kind == NUMBER:
        return int(text)
    if kind == DURATION:
        return parse_duration(text)
    if kind == DOCUMENT:
        return json.loads(text)
    if kind == FLAG and text.strip().lower() not in {"true", "false"}:
        raise ValueError(text)
    return text

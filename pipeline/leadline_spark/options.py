"""The reader of options: one table with types, defaults and aliases, and hints for typos.

Spark passes options as text under lower-case names. The table has the spelling that users write and
docs/spark-options.md shows. A name outside of the table is refused, because nobody would notice in
time that a misspelt `failOnDataLoss` is ignored.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline_spark.errors import LeadlineSparkError

TEXT = "text"
NUMBER = "whole number"
FLAG = "true or false"
DURATION = "duration"
DOCUMENT = "JSON"
LIST = "list"

BATCH = "batch read"
STREAM = "stream read"
WRITE = "write"

_UNITS_MS = {"ms": 1, "s": 1_000, "sec": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000}
_UNITS_MS |= {"d": 86_400_000, "us": 0}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, the kind of its value, its scopes, and its meaning.

    `default` is as users would write it, or None. `choices` lists all valid values, `minimum` and
    `maximum` are the bounds if the value is a number. `aliases` are other names, mostly Kafka's.
    """

    name: str
    kind: str
    meaning: str
    scopes: tuple[str, ...]
    default: str | None = None
    minimum: int = 1
    maximum: int = 2**63 - 1
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def check_columns(names: Iterable[str], known: Sequence[str], problem: str) -> None:
    """Raise LEADLINE_OPTION_INVALID for a name in the option `columns` that is not known."""
    for name in names:
        if name not in known:
            advice = near(name, list(known)) or f" There are: {', '.join(known)}."
            message = f"columns names {name!r}, which {problem}.{advice}"
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)


def near(name: str, known: list[str]) -> str:
    """Return a hint for an unknown name: the closest known one, if any is close."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]}?" if close else ""


class Options:
    """The options of one data source, checked on construction. Getters take the table's spelling.

    Raises LeadlineSparkError: LEADLINE_OPTION_UNKNOWN, _INVALID, or _CONFLICT for different values
    under two names of one option.
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
        """Return whether an option was given."""
        return name in self._texts

    def text(self, name: str) -> str | None:
        """Return the value as given (a choice in lower case), or the default."""
        row, text = self._rows[name], self._texts.get(name)
        if text is None:
            return row.default
        return text.strip().lower() if row.choices else text

    def required(self, name: str) -> str:
        """Return a required value. Raises LEADLINE_OPTION_MISSING."""
        text = self.text(name)
        if text is None:
            missing = f"The option {name} is required: {self._rows[name].meaning}"
            raise LeadlineSparkError("LEADLINE_OPTION_MISSING", missing)
        return text

    def number(self, name: str) -> int | None:
        """Return a whole number, or None if there is neither value nor default."""
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
        return None if text is None else parse_json(text)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a comma-separated list, without blanks and empty entries."""
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


def parse_json(text: str) -> Any:
    """Decode JSON. Raises ValueError, also for a key that is there twice: one would be dropped."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is there twice")
        found[key] = value
    return found


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
    """Return what a value should have been, or None if it is valid."""
    try:
        value = _parsed(row.kind, text)
    except ValueError as failure:
        if row.kind == DOCUMENT:
            return f"valid JSON ({failure})"
        return f"a {row.kind}" if row.kind != FLAG else FLAG
    if row.choices and text.strip().lower() not in row.choices:
        return "one of " + ", ".join(row.choices)
    if row.kind == NUMBER and value < row.minimum:
        return f"at least {row.minimum}"
    if row.kind == NUMBER and value > row.maximum:
        return f"at most {row.maximum}"
    return None


def _parsed(kind: str, text: str) -> Any:
    if kind == NUMBER:
        return int(text)
    if kind == DURATION:
        return parse_duration(text)
    if kind == DOCUMENT:
        return parse_json(text)
    if kind == FLAG and text.strip().lower() not in {"true", "false"}:
        raise ValueError(text)
    return text

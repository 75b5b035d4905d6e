"""Conversion of plain values of options and arguments without pydantic.

Typer converts every value with pydantic, whose import takes more than a third of the time of a
short command. Values that are plain and valid are converted here. Typer converts all others, and
reports all errors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import EnumMeta
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import typer

NO_HELP: Final = {"help": False}
"""The default of `--help`: typer would convert None, but takes a boolean as it is."""

_MOST_DIGITS: Final = 18
_NOT_PLAIN: Final = object()


def convert_without_pydantic(command: Any) -> None:
    """Convert plain values of a command, and of its subcommands, without pydantic."""
    command.context_settings.setdefault("default_map", NO_HELP)
    for parameter in command.params:
        convert = getattr(parameter, "get_runtime_param", None)
        if convert is not None:  # Otherwise this version of typer converts in another way.
            conversion = _Conversion(parameter.type_descriptor, convert)
            parameter.get_runtime_param = conversion.itself
    for subcommand in getattr(command, "commands", {}).values():
        convert_without_pydantic(subcommand)


class _Conversion:
    """Stands for what typer converts the values of a parameter with, and calls it if need be."""

    def __init__(self, kind: Any, converter: Callable[[], Any]) -> None:
        self._annotation = kind.annotation
        self._details = kind.parameter_info
        self._converter = converter

    def itself(self) -> _Conversion:
        """Return this, as typer asks for it."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value that the command's function takes."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        plain = self._plain(value, ctx) if self._details.parser is None else _NOT_PLAIN
        if plain is _NOT_PLAIN:
            return self._converter().coerce(value, param=param, ctx=ctx)
        return plain

    def _plain(self, value: Any, ctx: Any) -> Any:
        kind = self._annotation
        if kind is typer.FileBinaryRead and isinstance(value, str):
            return self._opened(value, ctx)
        if kind is str and isinstance(value, str):
            return value
        if kind == list[str] and isinstance(value, (list, tuple)):
            return list(value) if all(isinstance(one, str) for one in value) else _NOT_PLAIN
        if kind is int and _is_whole(value):
            return self._in_range(int(value))
        if kind is Path and isinstance(value, (str, Path)) and self._takes(value):
            return Path(value)
        return _choice(kind, value)

    def _opened(self, name: str, ctx: Any) -> Any:
        """Return a file to read, which is closed at the end of the command, or standard input."""
        if self._details.mode not in (None, "rb") or self._details.lazy:
            return _NOT_PLAIN
        if name == "-":
            return getattr(sys.stdin, "buffer", _NOT_PLAIN)
        try:
            file = open(name, "rb")  # noqa: SIM115, PTH123 -- its name is text, as with typer
        except OSError:
            return _NOT_PLAIN
        ctx.call_on_close(file.close)
        return file

    def _in_range(self, number: int) -> Any:
        least, most = self._details.min, self._details.max
        is_low = least is not None and number < least
        return _NOT_PLAIN if is_low or (most is not None and number > most) else number

    def _takes(self, path: str | Path) -> bool:
        """Return whether typer would take a path, whatever is there."""
        details = self._details
        asked = details.exists or details.writable or details.resolve_path or details.path_type
        if asked or not details.file_okay or not details.dir_okay:
            return False
        return os.access(path, os.R_OK) or not os.access(path, os.F_OK)


def _is_whole(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    return type(value) is int


def _choice(kind: Any, value: Any) -> Any:
    """Return the value if it is one of a choice, exactly as that is spelt."""
    if get_origin(kind) is Literal and value in get_args(kind):
        return value
    if isinstance(kind, EnumMeta):
        members: list[Any] = list(kind)
        return next((one for one in members if value in (one, one.value)), _NOT_PLAIN)
    return _NOT_PLAIN

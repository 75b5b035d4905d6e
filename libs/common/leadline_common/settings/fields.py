"""How a setting is declared: default, meaning, unit, limits, and where it may be changed."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field
from pydantic.config import JsonDict

KIB: Final = 1024
MIB: Final = 1024 * KIB
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Scope = Literal["read-only", "cluster-wide", "per-broker", "topic"]
"""Kafka's update modes (KIP-226), and that of a topic's own settings.

`read-only` settings are given at the start of a service. `cluster-wide` ones may
be changed while it runs, for the whole cluster, and where only brokers go by
them also for one broker. `per-broker` ones depend on the machine, so that they
may be changed for one broker only.
"""


def setting(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    scope: Scope = "read-only",
    aliases: tuple[str, ...] = (),
    sensitive: bool = False,
    ge: int | None = None,
    le: int | None = None,
) -> Any:
    """Declare a setting of a service. `ge` and `le` are its least and its greatest value.

    `aliases` are further names under which it is accepted. The value of a
    `sensitive` one is never shown.
    """
    facts = _facts(unit, scope) | {"aliases": list(aliases), "sensitive": sensitive}
    return Field(default, description=meaning, ge=ge, le=_bound(ge, le), json_schema_extra=facts)


def required(meaning: str, *, ge: int | None = None) -> Any:
    """Declare a setting of a service that has no default."""
    facts = _facts("", "read-only")
    return Field(description=meaning, ge=ge, le=_bound(ge, None), json_schema_extra=facts)


def topic_setting(follows: str, *, unit: str = "", ge: int | None = None) -> Any:
    """Declare a topic's own setting; what it does not set follows the service's `follows`."""
    facts = _facts(unit, "topic") | {"follows": follows}
    meaning = f"As `{follows}`, for one topic."
    return Field(None, description=meaning, ge=ge, le=_bound(ge, None), json_schema_extra=facts)


def _facts(unit: str, scope: Scope) -> JsonDict:
    return {"unit": unit, "scope": scope}


def _bound(ge: int | None, le: int | None) -> int | None:
    """Keep numbers within what others can hold, where nothing closer is said."""
    return INT64_MAX if le is None and ge is not None else le

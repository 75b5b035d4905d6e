"""A number in the body of a request is a number, and neither a truth value nor a text."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from leadline_common.api.users import NewTokenBody, QuotasBody

SERVICES = ("broker", "controller", "coordinator")
OF_KAFKA = "leadline_broker.api.v3."
"""Modules whose requests are read as Confluent's REST proxy reads them."""


def bodies() -> list[type[BaseModel]]:
    apps = [importlib.import_module(f"leadline_{name}.main").openapi_app() for name in SERVICES]
    routes = [route for app in apps for route in app.routes if isinstance(route, APIRoute)]
    shapes = [one.body_field.field_info.annotation for one in routes if one.body_field is not None]
    models = {shape for shape in shapes if isinstance(shape, type) and issubclass(shape, BaseModel)}
    ours = [one for one in models if not one.__module__.startswith(OF_KAFKA)]
    return sorted(ours, key=lambda model: model.__name__)


def lax_numbers(schema: Any, path: str) -> Iterator[str]:
    """Yield where a core schema of Pydantic has a whole number that texts and others count for."""
    if isinstance(schema, list | tuple):
        for one in schema:
            yield from lax_numbers(one, path)
    elif isinstance(schema, dict):
        choices = [one.get("type") for one in schema.get("choices", ()) if isinstance(one, dict)]
        if schema.get("type") == "int" and not schema.get("strict"):
            yield path
        if "bool" in choices:
            return  # A setting takes all of them.
        for name, one in schema.items():
            yield from lax_numbers(one, f"{path}.{name}")


def test_there_are_bodies() -> None:
    assert {"QuotasBody", "NewTopicBody", "JoinBody"} <= {one.__name__ for one in bodies()}


@pytest.mark.parametrize("model", bodies(), ids=lambda model: str(model.__name__))
def test_whole_numbers_are_strict(model: type[BaseModel]) -> None:
    assert [*lax_numbers(model.__pydantic_core_schema__, model.__name__)] == []


@pytest.mark.parametrize("value", [True, "7", 7.0])
def test_a_quota_and_the_life_of_a_token_are_numbers(value: object) -> None:
    with pytest.raises(ValidationError):
        QuotasBody.model_validate({"requests_per_s": value})
    with pytest.raises(ValidationError):
        NewTokenBody.model_validate({"expires_in_ms": value})

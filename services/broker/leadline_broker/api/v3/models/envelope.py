"""What all resources and lists have."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

ItemT = TypeVar("ItemT")

Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class Strict(BaseModel):
    """A body whose members have exactly the stated types, and no others."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Relationship(Strict):
    """A link to a related resource."""

    related: str


class Metadata(Strict):
    """The URL and the name of a resource."""

    self: str
    resource_name: str


class ListMetadata(Strict):
    """The URL of a list; `next` is null, because every list is whole."""

    self: str
    next: str | None


class Listed(Strict, Generic[ItemT]):
    """A list of resources."""

    kind: str
    metadata: ListMetadata
    data: list[ItemT]

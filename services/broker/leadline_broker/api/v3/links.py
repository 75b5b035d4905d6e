"""Links between resources, and their Confluent resource names (CRN)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request

from leadline_broker.api.v3.layer import PREFIX, PREFIX_KEY
from leadline_broker.api.v3.models.envelope import ListMetadata, Metadata, Relationship

_SAFE = "-._~"


def base_of(request: Request, advertised_url: str) -> str:
    """Return the URL at which the caller of a request finds the API.

    That is the broker's advertised URL if it has one, otherwise the address that the caller, or a
    proxy in front of the broker, has used.
    """
    prefix: str = request.scope.get(PREFIX_KEY, PREFIX)
    if advertised_url:
        return advertised_url.rstrip("/") + prefix
    headers = request.headers
    scheme = headers.get("x-forwarded-proto", "").partition(",")[0].strip() or request.url.scheme
    host = headers.get("x-forwarded-host", "").partition(",")[0].strip() or request.url.netloc
    return f"{scheme}://{host}{request.scope.get('root_path', '')}{prefix}"


@dataclass(frozen=True, slots=True)
class Links:
    """Makes the links within one cluster; `base` is the URL of the API."""

    base: str
    cluster_id: str

    def url(self, *segments: str | int) -> str:
        """Return the URL of a resource below the cluster; without segments, of the cluster."""
        names = ("clusters", self.cluster_id, *segments)
        return self.base + "".join(f"/{quote(str(one), safe=_SAFE)}" for one in names)

    def related(self, *segments: str | int) -> Relationship:
        """Return a relationship to a resource below the cluster."""
        return Relationship(related=self.url(*segments))

    def crn(self, *parts: str) -> str:
        """Return the resource name with parts such as `topic=orders`."""
        return "/".join(["crn://", f"kafka={self.cluster_id}", *parts])

    def resource(self, segments: tuple[str | int, ...], *parts: str) -> Metadata:
        """Return the metadata of a resource, by its path and the parts of its name."""
        return Metadata(self=self.url(*segments), resource_name=self.crn(*parts))

    def listed(self, *segments: str | int) -> ListMetadata:
        """Return the metadata of a list; it is always whole, so there is no next page."""
        return ListMetadata(self=self.url(*segments), next=None)

"""The metadata of all topics: read as a whole once, then only what has changed since.

After each answer the client knows a state of the metadata by its ETag, and asks the next broker or
controller for the changes since. One that cannot tell answers with everything. Pure: no IO.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from leadline_client.cache import MetadataCache
from leadline_client.flows import Flow
from leadline_client.payloads import decoded, document_of
from leadline_client.transport import Response
from leadline_client.wire import Metadata, MetadataChanges

_LONGEST_NAMES: Final = 6_144
"""Names of topics in a URL, in bytes; services limit a URL to 8 KiB."""
_PLAIN: Final = re.compile(r"[\w.-]+", re.ASCII)
"""What a URL has as it is; any other byte takes three."""


def fit_in_url(names: Collection[str]) -> bool:
    """Return whether a request can name these topics. If not, read all and take `only` them."""
    text = ",".join(names)
    escaped = _PLAIN.sub("", text).encode()
    return len(text.encode()) + 2 * len(escaped) <= _LONGEST_NAMES


def only(metadata: Metadata, names: Collection[str]) -> Metadata:
    """Return the metadata without topics of other names."""
    wanted = frozenset(names)
    there = {name: topic for name, topic in metadata.topics.items() if name in wanted}
    return replace(metadata, topics=there)


@dataclass(eq=False, slots=True)
class KnownState:
    """A state of the metadata that the cache has: its ETag, and the topics that exist in it.

    The cache may have newer topics, and others: those of requests that name them.
    """

    etag: str
    topics: set[str]


class WholeMetadata:
    """Merges the answers to requests for all topics into a cache."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._known: KnownState | None = None

    def read(
        self,
        get: Callable[[dict[str, str]], Flow[Response]],
        names: Collection[str] | None = None,
    ) -> Flow[Metadata]:
        """Return all topics, or those of some names out of all.

        `get` sends a request for the metadata with this query.
        """
        known, found = self._known, None
        while found is None:
            response = yield from get(self.params(known))
            found = self.apply(document_of(response), response.headers.get("etag"), known)
            known = None
        return found if names is None else only(found, names)

    @property
    def known(self) -> KnownState | None:
        """The state to ask for the changes of; None: ask for everything."""
        return self._known

    @staticmethod
    def params(known: KnownState | None) -> dict[str, str]:
        """Return the query of a request for what has changed since a state."""
        return {} if known is None else {"changed_after": known.etag}

    def apply(
        self, answer: Mapping[str, Any], etag: str | None, known: KnownState | None
    ) -> Metadata | None:
        """Merge the answer to a request that was made with `known`; return all topics.

        None: the changes are to a state that the cache does not have any more. Nothing is wrong
        with what it has, but ask for everything, with None for `known`.
        Raises ClusterChanged: another cluster answers, so nothing is merged.
        """
        if answer.get("changed_after") is None:
            return self._apply_document(decoded(Metadata.from_json, answer), etag)
        return self._apply_changes(decoded(MetadataChanges.from_json, answer), etag, known)

    def _apply_document(self, document: Metadata, etag: str | None) -> Metadata:
        if self._cache.update(document):
            # Otherwise a broker that lags sent it, and deletions that it does not know are missing.
            self._known = None if etag is None else KnownState(etag, set(document.topics))
        return self._cache.snapshot(document)

    def _apply_changes(
        self, changes: MetadataChanges, etag: str | None, known: KnownState | None
    ) -> Metadata | None:
        newer = self._cache.update_changes(changes)
        if known is None or known is not self._known:
            return None  # Another request has read everything meanwhile, perhaps with other rights.
        if newer:
            known.topics.update(changes.document.topics)
            known.topics.difference_update(changes.deleted)
            # A topic may be unknown because an answer about it by name was that it does not exist.
            if etag is None or not self._cache.has_all(known.topics, changes.rows):
                self._known = None
                return None
            known.etag = etag
        return self._cache.snapshot(changes.document, known.topics)

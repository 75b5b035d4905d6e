"""Documents with strong ETags: 304 for who has them, compressed for who accepts it."""

import gzip

import httpx
import pytest
from fastapi import Request, Response

from leadline_common.http.app import create_app
from leadline_common.http.caching import Document
from tests.unit.common.http_app import anybody, client_of

BODY = b'{"topics": [' + b",".join(b'"topic-%d"' % n for n in range(500)) + b"]}"


def client(document: Document) -> httpx.AsyncClient:
    app = create_app(title="Documents", version="1", description="d", need_of=anybody)

    @app.get("/v1/metadata")
    async def metadata(request: Request) -> Response:
        return document.answer(request)

    return client_of(app)


async def test_a_document_comes_with_a_strong_etag_and_304_afterwards() -> None:
    document = Document(BODY, "17")
    async with client(document) as http:
        plain = await http.get("/v1/metadata", headers={"accept-encoding": "identity"})
        again = await http.get("/v1/metadata", headers={"if-none-match": plain.headers["etag"]})
    assert (plain.headers["etag"], plain.content) == ('"17"', BODY)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["vary"] == "Accept-Encoding"


async def test_the_compressed_form_is_another_representation_of_the_same_version() -> None:
    async with client(Document(BODY, "17")) as http:
        async with http.stream(
            "GET", "/v1/metadata", headers={"accept-encoding": "br, gzip"}
        ) as packed:
            sent = b"".join([chunk async for chunk in packed.aiter_raw()])
        again = await http.get("/v1/metadata", headers={"if-none-match": packed.headers["etag"]})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["etag"] == '"17-gzip"'
    assert len(sent) < len(BODY) / 3
    assert gzip.decompress(sent) == BODY
    assert again.status_code == 304


@pytest.mark.parametrize(
    ("stated", "status"),
    [
        ('"16"', 200),
        ('"16", W/"17"', 304),
        ("*", 304),
        ("17", 200),
        ('"170"', 200),
    ],
)
async def test_if_none_match(stated: str, status: int) -> None:
    async with client(Document(BODY, "17")) as http:
        answer = await http.get("/v1/metadata", headers={"if-none-match": stated})
    assert answer.status_code == status


@pytest.mark.parametrize(
    "accepted", ["identity", "gzip;q=0", "gzip; Q=0.000", "*, gzip;q=0", "br", ""]
)
async def test_who_does_not_accept_gzip_gets_none(accepted: str) -> None:
    async with client(Document(BODY, "17")) as http:
        answer = await http.get("/v1/metadata", headers={"accept-encoding": accepted})
    assert "content-encoding" not in answer.headers
    assert answer.content == BODY


@pytest.mark.parametrize("accepted", ["gzip", "*", "gzip;q=0.001", "*;q=0, gzip"])
async def test_who_accepts_gzip_gets_it(accepted: str) -> None:
    async with client(Document(BODY, "17")) as http:
        answer = await http.get("/v1/metadata", headers={"accept-encoding": accepted})
    assert answer.headers["content-encoding"] == "gzip"


async def test_small_documents_are_not_worth_compressing() -> None:
    async with client(Document(b"{}", "1")) as http:
        answer = await http.get("/v1/metadata", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers

"""The OpenAPI document and the pages that show it."""

import asyncio
import re
import threading
from typing import Any

import msgspec
import pytest

from leadline_client.errors import NotFound, UnknownTopic
from leadline_common.http.app import create_app
from leadline_common.http.docs import link_services
from leadline_common.http.operation import OCTETS, Body, Operation, Parameter
from tests.support.openapi.conventions import check_valid, problems_of, resolved
from tests.unit.common.http_app import BulkRow, anybody, build, client_of


class Other(msgspec.Struct):
    """Another thing."""

    size: int


class Endpoint:
    """Answers nothing; there to be documented."""

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        raise NotImplementedError


def raw_operation() -> Operation:
    return Operation(
        method="POST",
        path="/v1/raw/{p}",
        name="appendRaw",
        summary="Append",
        description="Appends batches.",
        tags=["things"],
        requests=[
            Body(OCTETS, "Record batches, format v2"),
            Body("application/json", "Rows", BulkRow, [1, 2]),
        ],
        responses=[Body("application/json", "Where they are", Other, Other(1))],
        parameters=[
            Parameter("p", "The partition", {"type": "integer"}, place="path", example=0),
            Parameter("acks", "Who must have it", {"type": "string"}, example="all"),
        ],
        answer_headers=[Parameter("X-Next", "The next offset", {"type": "integer"})],
    )


async def test_the_document_is_valid_and_complete() -> None:
    async with client_of(build()) as client:
        document = (await client.get("/openapi.json")).json()
    check_valid(document)
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == "1.2.3"
    assert {"/v1/things", "/healthz", "/readyz", "/metrics"} <= set(document["paths"])
    check_valid(build().internal_openapi())


async def test_defect_20_the_served_document_has_no_internal_operation() -> None:
    async with client_of(build()) as client:
        public = (await client.get("/openapi.json")).json()
    internal = build().internal_openapi()
    assert set(internal["paths"]) == {"/v1/internal/countRows", "/v1/internal/countPackedRows"}
    assert not set(public["paths"]) & set(internal["paths"])
    assert not {"BulkRequest", "BulkRow", "BulkResponse"} & set(public["components"]["schemas"])
    assert "Thing" not in internal["components"]["schemas"]
    assert [tag["name"] for tag in internal["tags"]] == ["internal"]
    assert "internal" not in [tag["name"] for tag in public["tags"]]


async def test_defect_23_documented_routes_come_first_in_their_order() -> None:
    app = build()
    app.add_asgi_route(raw_operation(), Endpoint())
    assert next(iter(app.openapi()["paths"])) == "/v1/raw/{p}"


async def test_refused_fields_are_documented_in_leadlines_error_format_and_not_as_422() -> None:
    public, internal = build().openapi(), build().internal_openapi()
    for document, path in ((public, "/v1/things"), (internal, "/v1/internal/countRows")):
        responses = resolved(document["paths"][path]["post"]["responses"], document)
        assert "422" not in responses
        schema = responses["400"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/ErrorBody"}
    assert "HTTPValidationError" not in public["components"]["schemas"]


async def test_bulk_routes_show_the_schemas_of_their_structs_and_their_examples() -> None:
    document = build().internal_openapi()
    operation = document["paths"]["/v1/internal/countRows"]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    assert content["schema"] == {"$ref": "#/components/schemas/BulkRequest"}
    assert content["example"] == {"rows": [[1, 2]], "note": ""}
    assert document["components"]["schemas"]["BulkRow"]["type"] == "array"
    packed = document["paths"]["/v1/internal/countPackedRows"]["post"]
    assert list(packed["requestBody"]["content"]) == ["application/msgpack"]


async def test_raw_routes_show_octets_parameters_and_headers() -> None:
    app = build()
    app.add_asgi_route(raw_operation(), Endpoint())
    document = app.openapi()
    check_valid(document)
    operation = document["paths"]["/v1/raw/{p}"]["post"]
    contents = operation["requestBody"]["content"]
    assert set(contents) == {OCTETS, "application/json"}
    octets = contents[OCTETS]["schema"]
    assert (octets["type"], octets["format"]) == ("string", "binary")
    assert operation["parameters"][0]["required"] is True
    assert list(operation["responses"]["200"]["headers"]) == ["X-Next"]


async def test_a_route_added_after_the_document_was_shown_is_shown_too() -> None:
    app = build()
    assert "/v1/raw/{p}" not in app.openapi()["paths"]
    app.add_asgi_route(raw_operation(), Endpoint())
    assert "/v1/raw/{p}" in app.openapi()["paths"]
    assert app.openapi() is app.openapi()


async def test_the_document_is_made_once_and_not_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = build()
    makers: list[int] = []
    make = app.openapi

    def note_and_make() -> dict[str, Any]:
        makers.append(threading.get_ident())
        return make()

    monkeypatch.setattr(app, "openapi", note_and_make)
    async with client_of(app) as client:
        answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(3)))
        answers.append(await client.get("/openapi.json"))
    assert [answer.json() for answer in answers] == [make()] * 4
    assert len(makers) == 1
    assert makers != [threading.get_ident()]


def test_a_service_may_describe_a_common_tag_in_its_own_words() -> None:
    own = {"name": "operations", "description": "Ours."}
    app = create_app(title="T", version="1", description="d", tags=[own], need_of=anybody)
    assert app.openapi()["tags"] == [own]


async def test_one_schema_name_cannot_mean_two_things() -> None:
    app = create_app(title="Two", version="1", description="d", need_of=anybody)
    app.add_asgi_route(raw_operation(), Endpoint())
    clash = msgspec.defstruct("Other", [("name", str)], module=__name__)
    clashing = Operation(
        method="GET",
        path="/v1/clash",
        name="clash",
        summary="s",
        description="d",
        tags=["things"],
        responses=[Body("application/json", "Other", clash)],
    )
    app.add_asgi_route(clashing, Endpoint())
    with pytest.raises(ValueError, match="two schemas are named Other"):
        app.openapi()


def test_operations_share_error_responses_whatever_the_order_of_their_errors() -> None:
    app = build()
    for name, errors in (("there", (NotFound, UnknownTopic)), ("back", (UnknownTopic, NotFound))):
        app.document(
            Operation(
                method="GET",
                path=f"/v1/{name}",
                name=name,
                summary="s",
                description="d",
                tags=["things"],
                errors=errors,
            )
        )
    document = app.openapi()
    shared = {"$ref": "#/components/responses/NotFoundOrUnknownTopic"}
    for name in ("there", "back"):
        assert document["paths"][f"/v1/{name}"]["get"]["responses"]["404"] == shared
    response = document["components"]["responses"]["NotFoundOrUnknownTopic"]
    assert response["description"] == "NotFound, UnknownTopic"
    assert response["content"]["application/json"]["examples"] == {
        "NotFound": {"$ref": "#/components/examples/NotFound"},
        "UnknownTopic": {"$ref": "#/components/examples/UnknownTopic"},
    }


def test_the_same_code_gives_the_same_document() -> None:
    assert build().openapi() == build().openapi()
    paths = list(build().openapi()["paths"])
    assert paths == sorted(paths)


def test_the_rules_for_documents_hold_for_this_service() -> None:
    assert problems_of(build().openapi()) == []
    assert problems_of(build().internal_openapi()) == []


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
async def test_the_pages_load_nothing_from_elsewhere(page: str) -> None:
    async with client_of(build()) as client:
        answer = await client.get(page)
        assert answer.status_code == 200
        loaded = re.findall(r'<(?:script|link)[^>]* (?:src|href)="([^"]+)"', answer.text)
        assert len(loaded) >= 2
        for address in loaded:
            assert address.startswith("/docs/assets/"), address
            asset = await client.get(address)
            assert asset.status_code == 200
            assert "://cdn." not in asset.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "/openapi.json" in answer.text


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
async def test_no_other_page_can_frame_the_pages(page: str) -> None:
    """Swagger UI sends requests: whoever framed it could have a user click what they hide."""
    async with client_of(build()) as client:
        policy = (await client.get(page)).headers["content-security-policy"]
    directives = policy.split("; ")
    for one in ("frame-ancestors 'none'", "base-uri 'none'", "object-src 'none'"):
        assert one in directives


async def test_the_address_alone_leads_to_the_pages() -> None:
    async with client_of(build()) as client:
        answer = await client.get("/")
        assert (answer.status_code, answer.headers["location"]) == (307, "/docs")
        missing = await client.get("/nowhere")
        assert missing.status_code == 404
        assert "/docs" in missing.json()["message"]


async def test_defect_23_pages_link_each_other_and_the_services() -> None:
    app = build()

    async def find(service: str) -> str | None:
        return f"http://{service}/docs" if service != "coordinator" else None

    link_services(app, app.page_links, find)
    async with client_of(app) as client:
        page = (await client.get("/docs")).text
        links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', page)
        assert [name for _, name in links] == [
            "Swagger UI",
            "ReDoc",
            "OpenAPI",
            "controller",
            "broker",
            "coordinator",
        ]
        for path, _ in links[:3]:
            assert (await client.get(path)).status_code == 200
        answer = await client.get("/docs/of/broker")
        assert (answer.status_code, answer.headers["location"]) == (307, "http://broker/docs")
        for unknown in ("coordinator", "nobody"):
            missing = await client.get(f"/docs/of/{unknown}")
            assert missing.status_code == 404
            assert unknown in missing.json()["message"]

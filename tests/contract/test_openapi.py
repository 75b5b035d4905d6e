"""Each service's OpenAPI document: valid, complete, and committed."""

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from leadline_client.errors import ERRORS_BY_CODE
from leadline_common.http.operation import INTERNAL, OCTETS
from tests.support.openapi.conventions import (
    ERROR_SCHEMA,
    METHODS,
    check_valid,
    problems_of,
    resolved,
)

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("controller", "broker", "coordinator")


DOCUMENTS = (*SERVICES, "controller-internal", "broker-internal")


@pytest.fixture(scope="module", params=DOCUMENTS)
def name(request: pytest.FixtureRequest) -> str:
    """A document's name, which is that of its file."""
    return str(request.param)


@pytest.fixture(scope="module")
def document(name: str) -> dict[str, Any]:
    """The document as the code makes it."""
    app = importlib.import_module(f"leadline_{name.removesuffix('-internal')}.main").openapi_app()
    made = app.internal_openapi() if name.endswith("-internal") else app.openapi()
    found: dict[str, Any] = json.loads(json.dumps(made))
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", resolved(item[method], document))
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    ]


def test_it_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    check_valid(document)


def test_every_operation_has_what_a_reader_needs(document: dict[str, Any]) -> None:
    assert problems_of(document) == []


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert sorted(ids) == sorted(set(ids))


def test_every_code_in_it_is_in_the_table(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for answer in operation["responses"].values():
            content = answer.get("content", {}).get("application/json", {})
            for example in content.get("examples", {}).values():
                code = example["value"].get("error_code")
                assert code is None or code in ERRORS_BY_CODE, name


def test_every_operation_lists_its_error_codes_with_an_example_of_each(
    document: dict[str, Any],
) -> None:
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get("application/json", {})
            if status != "default" and content.get("schema") == ERROR_SCHEMA:
                examples = content["examples"]
                assert ", ".join(examples) == answer["description"], f"{name} {status}"
                assert all("error_code" in one["value"] for one in examples.values())


def test_the_documents_stay_readable_in_size() -> None:
    lines = sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "openapi").glob("*.json")
    )
    assert lines <= 43_000


def test_every_service_has_health_readiness_and_metrics(
    name: str, document: dict[str, Any]
) -> None:
    own = {"/healthz", "/readyz", "/metrics"} & set(document["paths"])
    assert len(own) == (0 if name.endswith("-internal") else 3)


def test_defect_20_documents_for_clients_have_no_internal_operation(
    name: str, document: dict[str, Any]
) -> None:
    tags = {tag for _, operation in operations(document) for tag in operation["tags"]}
    if name.endswith("-internal"):
        assert tags == {INTERNAL}
    else:
        assert INTERNAL not in tags
    assert {tag["name"] for tag in document["tags"]} == tags


def test_defect_20_each_component_is_used(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    unused = [
        f"{kind}/{part}"
        for kind, parts in document["components"].items()
        for part in parts
        if f'"#/components/{kind}/{part}"' not in text and kind != "securitySchemes"
    ]
    assert unused == []
    schemes = document["components"].get("securitySchemes", {})
    assert {name for one in document.get("security", ()) for name in one} == set(schemes)


def test_defect_20_items_are_never_false(document: dict[str, Any]) -> None:
    """OpenAPI allows it, and generators do not read the document then."""
    assert '"items": false' not in json.dumps(document)


def test_defect_20_bodies_of_octets_have_a_type_and_a_format(document: dict[str, Any]) -> None:
    for where, operation in operations(document):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (body.get("content", {}).get(OCTETS) for body in bodies):
            if content is not None:
                kind = content["schema"]["type"], content["schema"]["format"]
                assert kind == ("string", "binary"), where


def test_defect_20_rows_of_the_metadata_name_their_positions() -> None:
    for service in ("controller", "broker"):
        app = importlib.import_module(f"leadline_{service}.main").openapi_app()
        schemas = app.openapi()["components"]["schemas"]
        row = schemas["MetadataRow"]
        for body in ("MetadataTopic", "PastTopicBody"):
            items = schemas[body]["properties"]["partitions"]["items"]
            assert items == {"$ref": "#/components/schemas/MetadataRow"}
        assert [position["title"] for position in row["prefixItems"]] == [
            "Partition",
            "Leader",
            "Leader Epoch",
            "Isr",
            "Replicas",
        ]
        assert all(position["description"] for position in row["prefixItems"])


def test_the_committed_document_is_that_of_the_code(name: str, document: dict[str, Any]) -> None:
    committed = json.loads((ROOT / "openapi" / f"{name}.json").read_text(encoding="utf-8"))
    assert committed == document, "run make openapi"


@pytest.mark.slow
def test_the_same_code_gives_the_same_bytes_in_another_process(name: str) -> None:
    assert (
        documents_of_a_process("1")[f"{name}.json"] == documents_of_a_process("2")[f"{name}.json"]
    )


@cache
def documents_of_a_process(hash_seed: str) -> dict[str, str]:
    """Return the texts of all documents, by file, as another process makes them."""
    code = "import json, scripts.openapi as o; print(json.dumps(o.documents()))"
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    documents: dict[str, str] = json.loads(made.stdout)
    return documents

"""Each service's OpenAPI document: valid, complete, and committed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from leadline_client.errors import ERRORS_BY_CODE
from tests.support.openapi.conventions import ERROR_SCHEMA, METHODS, problems_of, resolved

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("controller", "broker", "coordinator")


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def document(service: str) -> dict[str, Any]:
    """The document that the service serves."""
    main = importlib.import_module(f"leadline_{service}.main")
    found: dict[str, Any] = json.loads(json.dumps(main.openapi_app().openapi()))
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
    OpenAPIV31SpecValidator(document).validate()


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


def test_each_shared_response_and_example_is_used(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for kind in ("responses", "examples"):
        for name in document["components"][kind]:
            assert f'{{"$ref": "#/components/{kind}/{name}"}}' in text


def test_the_documents_stay_readable_in_size() -> None:
    lines = sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "openapi").glob("*.json")
    )
    assert lines <= 27_000


def test_every_service_has_health_readiness_and_metrics(document: dict[str, Any]) -> None:
    assert {"/healthz", "/readyz", "/metrics"} <= set(document["paths"])


def test_the_committed_document_is_that_of_the_code(service: str, document: dict[str, Any]) -> None:
    committed = json.loads((ROOT / "openapi" / f"{service}.json").read_text(encoding="utf-8"))
    assert committed == document, "run make openapi"


def test_the_same_code_gives_the_same_bytes_in_another_process(service: str) -> None:
    code = f"import scripts.openapi as o; print(o.documents()['{service}.json'], end='')"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1

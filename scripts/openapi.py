"""Write openapi/<service>.json from the code of each service.

Usage: python scripts/openapi.py [--check]

With --check nothing is written; the exit code is 1 where a document and the code differ. Each
service offers `leadline_<service>.main.openapi_app()`, which builds its application without IO.
"""

import importlib
import json
import sys
from pathlib import Path

OPENAPI = Path(__file__).resolve().parent.parent / "openapi"
SERVICES = ("controller", "broker", "coordinator")


def document_of(service: str) -> str:
    """Return the text of a service's OpenAPI document: the same code gives the same bytes."""
    app = importlib.import_module(f"leadline_{service}.main").openapi_app()
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the documents, or compare them; the exit code is the answer."""
    stale = 0
    for service in SERVICES:
        path = OPENAPI / f"{service}.json"
        document = document_of(service)
        if path.exists() and path.read_text(encoding="utf-8") == document:
            continue
        if arguments == ["--check"]:
            print(f"openapi/{service}.json differs from the code: run make openapi")
            stale = 1
        else:
            OPENAPI.mkdir(exist_ok=True)
            path.write_text(document, encoding="utf-8")
            print(f"wrote openapi/{service}.json")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

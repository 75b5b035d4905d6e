"""Generate the documents of openapi/ from the code of the services.

`<service>.json` is for clients, and the service serves it. `<service>-internal.json` has the
requests between services, where there are any. `coordinator-channel.json` is the AsyncAPI document
of the consumers' WebSocket.

Usage: python scripts/openapi.py [--check]

With --check nothing is written, and the exit code is 1 if a document differs from the code. Each
service has `leadline_<service>.main.openapi_app()`, which builds its application without IO. The
coordinator also has `asyncapi_document()`, which describes the frames of the channel.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

OPENAPI = Path(__file__).resolve().parent.parent / "openapi"
SERVICES = ("controller", "broker", "coordinator")


def documents() -> dict[str, str]:
    """Return the text of each document by file name; the same code gives the same bytes."""
    mains = {name: importlib.import_module(f"leadline_{name}.main") for name in SERVICES}
    found: dict[str, Any] = {}
    for name, main in mains.items():
        app = main.openapi_app()
        found[f"{name}.json"] = app.openapi()
        if (internal := app.internal_openapi())["paths"]:
            found[f"{name}-internal.json"] = internal
    found["coordinator-channel.json"] = mains["coordinator"].asyncapi_document()
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in found.items()
    }


def main(arguments: list[str]) -> int:
    """Write the documents, or with --check compare them; return the exit code."""
    stale = 0
    for name, document in documents().items():
        path = OPENAPI / name
        if path.exists() and path.read_text(encoding="utf-8") == document:
            continue
        if arguments == ["--check"]:
            print(f"openapi/{name} differs from the code: run make openapi")
            stale = 1
        else:
            OPENAPI.mkdir(exist_ok=True)
            path.write_text(document, encoding="utf-8")
            print(f"wrote openapi/{name}")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

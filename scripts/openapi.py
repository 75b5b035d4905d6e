"""Write openapi/<service>.json from the code of each service, and the channel's AsyncAPI document.

Usage: python scripts/openapi.py [--check]

With --check nothing is written; the exit code is 1 where a document and the code differ. Each
service offers `leadline_<service>.main.openapi_app()`, which builds its application without IO; the
coordinator offers `asyncapi_document()` besides, the frames of the WebSocket that consumers open.
"""

import importlib
import json
import sys
from pathlib import Path

OPENAPI = Path(__file__).resolve().parent.parent / "openapi"
SERVICES = ("controller", "broker", "coordinator")


def documents() -> dict[str, str]:
    """Return the text of each document by file name: the same code gives the same bytes."""
    mains = {name: importlib.import_module(f"leadline_{name}.main") for name in SERVICES}
    made = {f"{name}.json": main.openapi_app().openapi() for name, main in mains.items()}
    made["coordinator-channel.json"] = mains["coordinator"].asyncapi_document()
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in made.items()
    }


def main(arguments: list[str]) -> int:
    """Write the documents, or compare them; the exit code is the answer."""
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

"""The reference of a service's API as Markdown, from its document in openapi/.

The document is OpenAPI, or AsyncAPI for the messages of a WebSocket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")
FORWARDED_TO = {"broker": ("controller", "coordinator")}
"""Services that forward requests, and to which: there the operation is described, once."""
OF_ITSELF = "operations"
"""The tag of what every service answers for itself."""
_Json = dict[str, Any]
_Operation = tuple[str, str, _Json]
_SERVED = re.compile(r"\[([^\]]+)\]\((/[^)]*)\)")


def reference_of(document: Path) -> str:
    """Return a section for each tag or message of a document, with all that is in it."""
    service, folder = document.stem, document.parent
    described = {
        (method, path): _label(other, operation)
        for other in FORWARDED_TO.get(service, ())
        for method, path, operation in _operations(_load(folder / f"{other}.json"))
        if operation["tags"][0] != OF_ITSELF
    }
    return ApiReference(_load(document), service, described).text()


class ApiReference:
    """The operations of one document; references in it are followed.

    `described` are the operations that another page describes, with their labels there.
    """

    def __init__(
        self, document: _Json, service: str, described: Mapping[tuple[str, str], str]
    ) -> None:
        self._document, self._service, self._described = document, service, described

    def text(self) -> str:
        """Return the Markdown."""
        parts = self._messages() if "asyncapi" in self._document else self._parts()
        # A path of the service is not one of the site.
        return _SERVED.sub(r"\1 (`\2`)", "\n\n".join(parts)) + "\n"

    def _parts(self) -> Iterator[str]:
        yield self._document["info"].get("description", "").strip()
        yield from self._other_responses()
        operations = list(_operations(self._document))
        for tag in self._document["tags"]:
            rows = [row for row in operations if row[2]["tags"][0] == tag["name"]]
            if rows:
                yield f"## {_title(tag['name'])}\n\n{tag.get('description', '')}"
                yield self._forwarded(rows)
            for method, path, operation in rows:
                if (method, path) not in self._described:
                    yield from self._operation(method, path, operation)

    def _other_responses(self) -> Iterator[str]:
        """Say once what the responses named `default` say in each operation."""
        others = {
            self._resolved(operation["responses"]["default"])["description"]
            for _, _, operation in _operations(self._document)
            if "default" in operation["responses"]
        }
        yield from (f"**Other responses of every operation.** {one}" for one in sorted(others))

    def _forwarded(self, rows: Iterable[_Operation]) -> str:
        """Return a table of the operations that are described where they are forwarded to."""
        cells = [
            [f"`{method.upper()} {path}`", f"[{operation['summary']}](#{label})"]
            for method, path, operation in rows
            if (label := self._described.get((method, path)))
        ]
        return _table(("Forwarded", "Operation"), cells) if cells else ""

    def _messages(self) -> Iterator[str]:
        yield self._document["info"].get("description", "").strip()
        for message in self._document["components"]["messages"].values():
            yield f"## {message['title']}\n\n{message['description']}"
            yield self._fields(message["payload"])
            for example in message.get("examples", ()):
                yield self._example({"example": example["payload"]})

    def _operation(self, method: str, path: str, operation: _Json) -> Iterator[str]:
        yield f"({_label(self._service, operation)})=\n### {operation['summary']}"
        yield f"```text\n{method.upper()} {path}\n```"
        yield operation.get("description", "")
        parameters = [self._resolved(one) for one in operation.get("parameters", ())]
        if parameters:
            heads = ("Parameter", "In", "Type", "Default", "Meaning")
            yield _table(heads, map(self._parameter_cells, parameters))
        if "requestBody" in operation:
            yield from self._body(self._resolved(operation["requestBody"]))
        yield from self._responses(operation["responses"])

    def _parameter_cells(self, parameter: _Json) -> list[str]:
        schema = self._resolved(parameter["schema"])
        default = "required" if parameter.get("required") else _code(schema.get("default"))
        meaning = parameter.get("description") or schema.get("description", "")
        return [f"`{parameter['name']}`", parameter["in"], self._type(schema), default, meaning]

    def _body(self, body: _Json) -> Iterator[str]:
        for kind, content in body["content"].items():
            yield f"**Body** (`{kind}`)"
            yield self._fields(content.get("schema", {}))
            yield self._example(content)

    def _fields(self, schema: _Json) -> str:
        """Return a table of an object's members, or the description of anything else."""
        found = self._resolved(schema)
        if "properties" not in found:
            return found.get("description", "") or self._type(schema)
        required = found.get("required", ())
        rows = (
            [
                f"`{name}`",
                self._type(field),
                "required" if name in required else _code(self._resolved(field).get("default")),
                field.get("description") or self._resolved(field).get("description", ""),
            ]
            for name, field in found["properties"].items()
        )
        return _table(("Member", "Type", "Default", "Meaning"), rows)

    def _responses(self, responses: _Json) -> Iterator[str]:
        resolved = {
            status: self._resolved(one)
            for status, one in sorted(responses.items())
            if status != "default"
        }
        rows = ([f"`{status}`", one["description"]] for status, one in resolved.items())
        yield _table(("Status", "Response"), rows)
        for status, response in resolved.items():
            if status.startswith("2"):
                for content in response.get("content", {}).values():
                    yield self._fields(content.get("schema", {}))
                    yield self._example(content)

    def _example(self, content: _Json) -> str:
        """Return the first example of a body as a block."""
        named = [self._resolved(one) for one in content.get("examples", {}).values()]
        value = content.get("example", named[0].get("value") if named else None)
        if value is None:
            return ""
        if isinstance(value, str):
            return f"```text\n{value.strip()}\n```"
        return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```"

    def _type(self, schema: _Json | bool) -> str:
        """Return the name of a schema's type, as a reader would say it."""
        if not isinstance(schema, dict):  # True: any value.
            return "any"
        if "$ref" in schema:
            found = self._resolved(schema)
            return found["title"] if "properties" in found else self._type(found)
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            return " or ".join(dict.fromkeys(map(self._type, choices)))
        if "enum" in schema:
            return " or ".join(_code(value) for value in schema["enum"])
        kind = schema.get("type", _code(schema["const"]) if "const" in schema else "any")
        if kind == "array":
            return f"array of {self._type(schema.get('items', {}))}"
        return " or ".join(kind) if isinstance(kind, list) else str(kind)

    def _resolved(self, part: _Json | bool) -> _Json:
        """Follow a reference within the document."""
        followed: _Json = part if isinstance(part, dict) else {}
        while "$ref" in followed:
            found: Any = self._document
            for name in followed["$ref"].removeprefix("#/").split("/"):
                found = found[name.replace("~1", "/").replace("~0", "~")]
            followed = found
        return followed


def _load(document: Path) -> _Json:
    loaded: _Json = json.loads(document.read_text(encoding="utf-8"))
    return loaded


def _operations(document: _Json) -> Iterator[_Operation]:
    for path, item in document.get("paths", {}).items():
        for method in METHODS:
            if method in item:
                yield method, path, item[method]


def _label(service: str, operation: _Json) -> str:
    """Return an anchor that stays when the summary changes."""
    return f"{service}-{operation['operationId']}".replace("_", "-").lower()


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(value: object) -> str:
    return "" if value is None else f"`{json.dumps(value)}`".replace('"', "")


def _title(tag: str) -> str:
    return tag[0].upper() + tag[1:]

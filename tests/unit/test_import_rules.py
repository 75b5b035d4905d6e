"""Each import rule in pyproject.toml catches what it is for, and the tree keeps them all.

The violations are planted as modules of their own in a copy of the packages, so that the linter's
report names them: a rule that lost its teeth no longer names its plant.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "leadline_client": "libs/client",
    "leadline_common": "libs/common",
    "leadline_controller": "services/controller",
    "leadline_broker": "services/broker",
    "leadline_coordinator": "services/coordinator",
    "leadline_cli": "cli",
    "leadline_spark": "pipeline",
    "pyspark_leadline": "pipeline",
}


@dataclass(frozen=True)
class Plant:
    """One forbidden import: a new `module` that imports `imports`."""

    rule: str
    module: str
    imports: str
    evidence: str = ""
    """What the report shows, where that is not the import itself."""

    @property
    def shown(self) -> str:
        return self.evidence or f"{self.module} -> {self.imports}"


PLANTS = [
    Plant("stack", "leadline_common.planted_upwards", "leadline_broker.domain"),
    Plant("stack", "leadline_client.planted_upwards", "leadline_common.znodes"),
    Plant("stack", "leadline_broker.api.planted_neighbour", "leadline_controller.domain"),
    Plant("stack", "leadline_controller.domain.planted_upwards", "leadline_cli"),
    Plant("stack", "leadline_coordinator.runtime.planted_neighbour", "leadline_broker.domain"),
    Plant("rings", "leadline_broker.domain.planted_upwards", "leadline_broker.runtime"),
    Plant("rings", "leadline_controller.runtime.planted_sibling", "leadline_controller.adapters"),
    Plant("rings", "leadline_broker.adapters.planted_sibling", "leadline_broker.runtime"),
    Plant("rings", "leadline_controller.runtime.planted_upwards", "leadline_controller.api"),
    Plant(
        "rings", "leadline_broker.planted_stray", "enum", evidence="- leadline_broker.planted_stray"
    ),
    Plant("api-asks-runtime", "leadline_broker.api.planted_shortcut", "leadline_broker.adapters"),
    Plant("pure", "leadline_broker.domain.planted_clock", "time"),
    Plant("pure", "leadline_coordinator.domain.planted_clock", "time"),
    Plant("pure", "leadline_controller.domain.planted_chance", "random"),
    Plant("pure", "leadline_controller.domain.planted_helper", "leadline_common.planted_impure"),
    Plant("thin-client", "leadline_client.planted_server", "msgspec"),
    Plant("client-core", "leadline_client.errors.planted_library", "aiohttp"),
    Plant("executors", "leadline_spark.read.planted_client", "leadline_client.http_transport"),
    Plant("executors", "leadline_spark.codec.planted_library", "httpx"),
    Plant("executors", "leadline_client.columnar.planted_codec", "leadline_client.compiled_codec"),
    Plant("pure", "leadline_client.columnar.planted_clock", "time"),
    Plant("caio", "leadline_broker.runtime.planted_fsync", "caio"),
    Plant("kazoo", "leadline_controller.adapters.planted_session", "kazoo"),
    Plant("opentelemetry", "leadline_broker.runtime.planted_span", "opentelemetry"),
    Plant("opentelemetry", "leadline_client.planted_span", "opentelemetry"),
    Plant("web-framework", "leadline_broker.runtime.planted_request", "fastapi"),
    Plant("checked-models", "leadline_controller.runtime.planted_model", "pydantic"),
    Plant("http-clients", "leadline_controller.runtime.planted_call", "httpx"),
    Plant("database", "leadline_controller.runtime.planted_table", "sqlite3"),
    Plant("bundled-java", "leadline_common.planted_java", "pyspark"),
    Plant(
        "no-cycles",
        "leadline_common.planted_cycle",
        "leadline_common.planted_impure",
        evidence="No cycles are allowed in leadline_common.",
    ),
    Plant(
        "controller-runtime",
        "leadline_controller.runtime.engine.planted_upwards",
        "leadline_controller.runtime.topics",
    ),
    Plant(
        "controller-runtime",
        "leadline_controller.runtime.channel.planted_upwards",
        "leadline_controller.runtime.engine",
    ),
    Plant(
        "controller-runtime",
        "leadline_controller.runtime.audit.planted_neighbour",
        "leadline_controller.runtime.reassignment",
    ),
    Plant(
        "controller-runtime",
        "leadline_controller.runtime.topics.planted_upwards",
        "leadline_controller.runtime.active_controller",
    ),
    Plant(
        "broker-runtime",
        "leadline_broker.runtime.cluster.planted_upwards",
        "leadline_broker.runtime.replication.partition",
    ),
    Plant(
        "broker-runtime",
        "leadline_broker.runtime.replication.planted_upwards",
        "leadline_broker.runtime.serving.serving",
    ),
    Plant(
        "broker-runtime",
        "leadline_broker.runtime.serving.planted_upwards",
        "leadline_broker.runtime.staging.staging",
    ),
    Plant(
        "broker-runtime",
        "leadline_broker.runtime.planted_room",
        "enum",
        evidence="- leadline_broker.runtime.planted_room",
    ),
    Plant("spark-layers", "leadline_spark.cluster.planted_upwards", "leadline_spark.read.offsets"),
    Plant("spark-layers", "leadline_spark.write.planted_sibling", "leadline_spark.read.offsets"),
]


def lint(packages: dict[str, Path]) -> tuple[int, str]:
    """Run the import linter on the packages found in these folders; (exit code, report)."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in packages.values()),
        # The report is wrapped to the terminal's width: no line of it may be cut in two.
        "COLUMNS": "400",
        "NO_COLOR": "1",
    }
    linter = Path(sys.executable).with_name("lint-imports")
    command = [str(linter), "--no-logo", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_the_tree_keeps_every_rule() -> None:
    code, report = lint({package: ROOT / folder for package, folder in PACKAGES.items()})

    assert code == 0, report


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The linter's report on a copy of the packages with every plant in it."""
    copy = tmp_path_factory.mktemp("planted")
    for package, folder in PACKAGES.items():
        shutil.copytree(ROOT / folder / package, copy / package)
    for plant in PLANTS:
        module = copy / Path(*plant.module.split(".")).with_suffix(".py")
        module.write_text(f"import {plant.imports}\n", encoding="utf-8")
    impure = copy / "leadline_common" / "planted_impure.py"
    impure.write_text("import asyncio\nimport leadline_common.planted_cycle\n", encoding="utf-8")
    code, report = lint(dict.fromkeys(PACKAGES, copy))
    assert code == 1, report
    return report


def contracts() -> dict[str, str]:
    """The rules of pyproject.toml: id to name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {entry["id"]: entry["name"] for entry in settings["tool"]["importlinter"]["contracts"]}


def section(report: str, rule: str) -> str:
    """Return the part of a report that is about one rule."""
    _, _, rest = report.partition(f"{contracts()[rule]}\n---")
    return re.split(r"\n(?=[^\n]+\n-{10,}\n)", rest)[0]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.rule}-{plant.module}")
def test_a_planted_violation_is_reported(planted: str, plant: Plant) -> None:
    assert plant.shown in section(planted, plant.rule)


def test_every_rule_has_a_plant() -> None:
    assert {plant.rule for plant in PLANTS} == contracts().keys()

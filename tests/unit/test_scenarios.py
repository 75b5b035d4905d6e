"""Every named fault scenario has a test of real processes, a documented row, and a command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import test_random_mix
from tests.support.faults import __main__ as command
from tests.support.faults.catalogue import BLACK_BOX, GATE, SCENARIOS, TESTS, marked_tests

ROOT = TESTS.parent
ROW = re.compile(r"^\| (S\d+) \| .* \| (.*) \|$", re.MULTILINE)
MARKED = """
import pytest

@pytest.mark.scenario("S1")
def test_one(seeded):
    print("drawn", seeded.random())

@pytest.mark.scenario("S2")
def test_two():
    pass

def test_three():
    pass
"""


@pytest.fixture(scope="module")
def black_box() -> dict[str, list[str]]:
    """Return the marked tests of real processes, by scenario."""
    return marked_tests(BLACK_BOX)


def test_the_scenarios_are_s1_to_s31() -> None:
    assert list(SCENARIOS) == [f"S{number}" for number in range(1, 32)]


@pytest.mark.parametrize("number", SCENARIOS)
def test_each_scenario_has_a_test_of_real_processes(
    number: str, black_box: dict[str, list[str]]
) -> None:
    assert black_box.get(number), f"no test in tests/e2e is marked with {number}"


def test_no_test_is_marked_with_a_scenario_that_does_not_exist() -> None:
    assert set(marked_tests()) <= set(SCENARIOS)


def test_the_documentation_names_the_files_of_each_scenario(
    black_box: dict[str, list[str]],
) -> None:
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    named = {
        number: set(re.findall(r"`(test_\w+\.py)`", files)) for number, files in ROW.findall(page)
    }
    marked = {
        number: {Path(test.partition("::")[0]).name for test in tests}
        for number, tests in black_box.items()
    }

    assert named == marked


def test_the_gate_has_twelve_scenarios_and_ten_thousand_seeds(
    black_box: dict[str, list[str]],
) -> None:
    assert len(GATE) == len(set(GATE) & set(SCENARIOS)) == 12
    words = [sys.executable, "-m", "tests.support.faults", "gate", "--collect-only"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = re.findall(r"test_with_every_rule_nothing_is_lost\[(\d+)\]", done.stdout)
    assert [int(part) for part in parts] == list(range(0, 10_000, 10_000 // len(parts)))
    for number in GATE:
        names = [test.rpartition("::")[2] for test in black_box[number]]
        assert any(name in done.stdout for name in names), f"{number} is left out"


def test_nothing_but_the_command_limits_how_long_the_random_mix_goes_on() -> None:
    """A mark would count for more than `--timeout`, and end a run of an hour."""
    marks = {mark.name for mark in vars(test_random_mix.test_s30_random_mix)["pytestmark"]}
    assert "timeout" not in marks


def test_a_mark_is_found_by_itself_and_for_a_module(tmp_path: Path) -> None:
    folder = TESTS / "unit/controller"
    source = 'import pytest\n\npytestmark = [pytest.mark.scenario("S3")]\n\ndef test_a(): ...\n'
    assert marked_tests(folder) == {}
    found = _tests_in(tmp_path, {"test_a.py": source, "test_b.py": MARKED})

    assert found == {
        "S1": ["test_b.py::test_one"],
        "S2": ["test_b.py::test_two"],
        "S3": ["test_a.py"],
    }


def _tests_in(folder: Path, sources: dict[str, str]) -> dict[str, list[str]]:
    for name, text in sources.items():
        (folder / name).write_text(text)
    return marked_tests(folder)


def _pytest(folder: Path, *options: str) -> str:
    (folder / "conftest.py").write_text(
        'pytest_plugins = ["tests.support.faults.scenario_options"]\n'
    )
    (folder / "test_marked.py").write_text(MARKED)
    words = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--rootdir"]
    words += [str(folder), "-o", "markers=scenario(number): of a test", str(folder), *options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_one_scenario_is_run_with_its_seed(tmp_path: Path) -> None:
    first, second, other = (
        _pytest(tmp_path, "--scenario", "S1", "--fault-seed", seed) for seed in ("4", "4", "5")
    )

    assert "1 passed, 2 deselected" in first
    drawn = [re.findall(r"drawn \S+", text) for text in (first, second, other)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_mark_of_no_scenario_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(MARKED.replace("S2", "S99"))

    assert "there is no scenario {'S99'}" in _pytest(tmp_path)


def test_the_command_lists_all_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SCENARIOS)


def test_the_command_refuses_what_is_no_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["S99"]) == 2
    assert "there is no scenario S99" in capsys.readouterr().err


def test_the_command_runs_each_seed_and_names_those_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds: list[int] = []

    def passes(number: str, seed: int, rest: list[str]) -> bool:
        seeds.append(seed)
        assert number == "S17"
        assert rest[:4] == ["-m", "not repeated", "--minutes", "0.0"]
        assert rest[-1] == "-x"
        return seed != 3

    monkeypatch.setattr(command, "passes", passes)

    assert command.main(["s17", "--seeds", "3", "--first-seed", "2", "-x"]) == 1
    assert seeds == [2, 3, 4]
    assert "make faults S=S17 SEEDS=1 SEED=3" in capsys.readouterr().out


def test_the_command_runs_only_repeated_tests_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[str] = []

    def passes(_number: str, _seed: int, rest: list[str]) -> bool:
        marks.append(rest[rest.index("-m") + 1])
        return True

    monkeypatch.setattr(command, "passes", passes)

    assert command.main(["S16", "--seeds", "1", "--repeated"]) == 0
    assert marks == ["repeated"]

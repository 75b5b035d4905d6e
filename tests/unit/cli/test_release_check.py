"""The releases of the brokers, as `leadline doctor` judges them."""

from __future__ import annotations

from typing import Any

from leadline_cli.release_check import check_releases


def row(number: int, release: str, oldest: int = 1, newest: int = 1) -> dict[str, Any]:
    versions = {"oldest_protocol": oldest, "newest_protocol": newest}
    return {"id": number, "release": release, **versions}


def test_one_release_needs_no_advice() -> None:
    assert check_releases([row(1, "0.2.0"), row(2, "0.2.0")]) == (True, "0.2.0: broker 1, 2", "")


def test_two_releases_that_fit_are_named_and_no_fault() -> None:
    checked = check_releases([row(1, "0.3.0", 1, 2), row(2, "0.2.0"), row(3, "")])
    assert checked.ok
    assert checked.found == "0.2.0: broker 2; 0.3.0: broker 1; unknown: broker 3"
    assert checked.advice == "finish the rolling upgrade or its rollback"


def test_two_releases_that_do_not_fit_are_a_fault() -> None:
    checked = check_releases([row(1, "0.3.0", 1, 2), row(2, "0.2.0"), row(3, "0.4.0", 2, 3)])
    assert not checked.ok
    assert "broker 3 (release 0.4.0) speaks protocol versions 2 to 3" in checked.advice
    assert "broker 2 (release 0.2.0) speaks 1 to 1" in checked.advice


def test_the_rows_of_a_controller_that_names_no_releases_can_be_read() -> None:
    assert check_releases([{"id": 1}, {"id": 2}]) == (True, "unknown: broker 1, 2", "")

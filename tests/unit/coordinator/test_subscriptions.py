"""Which names new groups can have."""

from __future__ import annotations

import pytest

from leadline_client.errors import InvalidRequest
from leadline_coordinator.domain.subscriptions import check_group_name


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a/b", ".", ".."])
def test_a_name_that_paths_or_logs_cannot_show_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_group_name(name)


@pytest.mark.parametrize("name", ["x" * 255, "...", ".a", "a.b", "caf\u00e9 #1?", "%2F"])
def test_any_other_name_is_allowed(name: str) -> None:
    check_group_name(name)

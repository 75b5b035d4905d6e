"""`python -m leadline_coordinator`: one coordinator, set up from the environment alone."""

from __future__ import annotations

import os

from leadline_common.settings import CoordinatorSettings, load_settings
from leadline_coordinator.main import run

if __name__ == "__main__":
    run(load_settings(CoordinatorSettings, flags={}, environment=os.environ))

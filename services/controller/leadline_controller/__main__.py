"""`python -m leadline_controller`: one controller, set up from the environment alone."""

from __future__ import annotations

import os

from leadline_common.settings import ControllerSettings, load_settings
from leadline_controller.main import run

if __name__ == "__main__":
    run(load_settings(ControllerSettings, flags={}, environment=os.environ))

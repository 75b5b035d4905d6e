"""What the answers of every area of administration start from."""

from __future__ import annotations

from leadline_controller.runtime.service import ControllerService


class Answers:
    """Answers from one controller. The base of each area's own class."""

    def __init__(self, controller: ControllerService) -> None:
        self._controller = controller

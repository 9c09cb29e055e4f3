"""What a model will hold in memory, computed from its own files before anything is started.

`read_model` reads headers and configurations (never tensors); everything else here is pure
arithmetic on what it found.
"""

from turnout_sidecar.planner.load import Room, measured_in
from turnout_sidecar.planner.measured import Measured, Measurements
from turnout_sidecar.planner.model_files import ModelFiles, UnreadableModelError, read_model
from turnout_sidecar.planner.plan import Plan, make_plan
from turnout_sidecar.planner.wish import Wish, named_cards, visible_cards, wish_for

__all__ = [
    "Measured",
    "Measurements",
    "ModelFiles",
    "Plan",
    "Room",
    "UnreadableModelError",
    "Wish",
    "make_plan",
    "measured_in",
    "named_cards",
    "read_model",
    "visible_cards",
    "wish_for",
]

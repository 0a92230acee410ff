"""What the command line offers, known before anything is loaded: models, their kinds, choices.

Loading JAX takes a second, and making a model compiles. So what decides whether a command can run is written
here; a test compares it with the models and modules themselves.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple


class UsageError(Exception):
    """A mistake in the arguments, told in one line."""


class ModelKind(NamedTuple):
    """What sort of example a ready model is.

    Attributes:
        dim: 2 in the plane, 3 in space, 0 for what is no mechanism but an event-selected system.
        num_contacts: how many contacts it has.
        has_impact: whether it comes with the settings of an impact, `step` and `max_steps`.
    """

    dim: int = 0
    num_contacts: int = 0
    has_impact: bool = False


KINDS = {
    "affine_3d": ModelKind(),
    "ant": ModelKind(3, 9),
    "box_and_wall": ModelKind(2, 2, True),
    "box_drop_3d": ModelKind(3, 4, True),
    "box_on_foundation": ModelKind(3, 0),
    "box_on_incline": ModelKind(3, 4),
    "compass_gait": ModelKind(2, 2, True),
    "disk_stack": ModelKind(2, 5, True),
    "half_cheetah": ModelKind(2, 16),
    "hopper": ModelKind(2, 8),
    "hopper_1d": ModelKind(2, 1),
    "newtons_cradle": ModelKind(2, 2),
    "pendulum_joint": ModelKind(2, 0),
    "pendulum_limit": ModelKind(2, 0),
    "planar_walker": ModelKind(2, 4, True),
    "plate_on_springs": ModelKind(2, 6),
    "pressed_plate": ModelKind(),
    "quadruped": ModelKind(3, 4),
    "ramone": ModelKind(2, 2, True),
    "rocking_block": ModelKind(2, 2, True),
    "sphere_stack": ModelKind(3, 10),
    "spring_legged_hexapod": ModelKind(),
    "spring_legged_hopper": ModelKind(),
    "swinging_cradle": ModelKind(2, 2),
    "tossed_cube": ModelKind(3, 8),
    "trex": ModelKind(2, 3),
}
SELECTIONS = ("all", "visited", "lemke")  # of `jaxcontact.impact.sample`
LEAST_COVERED = 16  # samples from which `jaxcontact.impact.analysis.coverage` can say something
GAITS = ("hexapod", "hopper")  # of `jaxcontact.optimize.gaits`
METHODS = ("homogeneous", "full", "single")  # of `jaxcontact.stability.certify`
CHARTS = ("fig2", "fig3")  # of `jaxcontact.stability.chart`


def find_kind(name: str) -> ModelKind:
    """The kind of the model of this name.

    Raises:
        UsageError: there is none; says which may have been meant. Or it needs a package that is missing.
    """
    if name not in KINDS:
        near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"models: {', '.join(KINDS)}"
        raise UsageError(f"no model {name!r}; {hint}")
    return KINDS[name]


def with_impacts() -> str:
    """The models that are set up for an impact, told to someone who asked for another."""
    return f"models of impacts: {', '.join(name for name, kind in KINDS.items() if kind.has_impact)}"

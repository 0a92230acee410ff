"""Tables of the models and choices that the command line offers, without loading JAX.

Loading JAX takes a second, and making a model compiles programs. So these tables decide whether a command can
run before anything is loaded. A test compares the tables with the models and modules.
"""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple


class UsageError(Exception):
    """A mistake in the arguments; its message is one line."""


class ModelKind(NamedTuple):
    """The properties of a ready model that decide which commands take it.

    Attributes:
        dim: 2 in the plane, 3 in space, 0 for an event-selected system, which is no mechanism.
        num_contacts: number of contacts.
        has_impact: whether the model has the settings of an impact, `step` and `max_steps`.
    """

    dim: int = 0
    num_contacts: int = 0
    has_impact: bool = False


Summary = dict[str, Any]  # what a command found: names and values that JSON has
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
LEAST_COVERED = 16  # smallest number of samples that `jaxcontact.impact.analysis.coverage` takes
STEPPERS = ("time-stepping", "compliant", "variational", "event-driven")  # of `jaxcontact.simulate`
LAWS = ("anitescu-potra", "routh", "sequential", "propagative", "plastic")  # of `jaxcontact.impact`
GAITS = ("hexapod", "hopper")  # of `jaxcontact.optimize.gaits`
WALKERS = ("planar_walker", "half_cheetah")  # planar robots of `jaxcontact.models` that have files
METHODS = (
    "homogeneous",
    "by_kind",
    "full",
    "printed",
    "single",
    "return_map",
)  # of `jaxcontact.stability.certify`
CHARTS = ("fig2", "fig3")  # of `jaxcontact.stability.chart`


def find_kind(name: str) -> ModelKind:
    """Return the kind of the model with a name.

    Raises:
        UsageError: there is no such model; the message names a similar one.
    """
    if name not in KINDS:
        close_names = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.4)
        hint = f"did you mean {close_names[0]!r}?" if close_names else f"models: {', '.join(KINDS)}"
        raise UsageError(f"no model {name!r}; {hint}")
    return KINDS[name]


def with_impacts() -> str:
    """List the models that are set up for an impact, as text for error messages."""
    return f"models of impacts: {', '.join(name for name, kind in KINDS.items() if kind.has_impact)}"

"""Records of a motion to be computed: `Inputs`, and `MotionSettings` with the method and the duration."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_number_leaves
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.mechanics.applied import Applied
from jaxcontact.mechanics.mocap import Mocap
from jaxcontact.simulate.stepper import Policy, Stepper
from jaxcontact.terms.slip_friction import Friction


class Inputs(NamedTuple):
    """Controls of a motion and what else acts on it.

    Attributes:
        controls: (T, nu) controls of the actuators; without actuators nu = nv, and they are generalized
            forces beside gravity and the forces of the system. Or a policy (model, state, t, memory, key) ->
            (u, memory), a module-level function or a pytree. None is zero controls.
        memory: pytree that the policy gets at the first step.
        applied: wrenches (T, 6), in the plane (T, 3), of bodies by their names: force at the centre of mass,
            N, and torque, N m, along world axes, constant during a step. They are part of `params` in it.
        mocap: poses (T + 1, 7) of mocap bodies by their names, position and quaternion (w, x, y, z) in the
            world; in the plane (T + 1, 3): x, z and the angle from the pose in the file, from x to z, rad.
            Contacts have the velocity that takes one pose to the next, in `EventDriven` and `Variational`
            that of a smooth path through all of them.
        friction: function (slip, t) -> mu, of the sliding speeds (nc,) of all candidate contacts, m/s, and of
            time, both at the start of a step; mu (nc,) or one number holds in it instead of `params.mu`. It
            is a module-level function, or a pytree such as `jax.tree_util.Partial`, whose numbers are leaves.
    """

    controls: jax.Array | Policy | None = None
    memory: PyTree = None
    applied: Applied | None = None
    mocap: Mocap | None = None
    friction: Friction | None = None


Controls = jax.Array | Policy | Inputs | None


@checked(duration=POSITIVE, dt=POSITIVE)
@dataclasses.dataclass(frozen=True, kw_only=True)
class MotionSettings:
    """A motion for drivers on the host: how a mechanism moves, and how long.

    Attributes:
        stepper: the method, such as `Compliant()`.
        duration: s, rounded to a number of steps.
        dt: s.
        controls: (T, nu) controls, a policy, or `Inputs`; None is zero controls.
    """

    stepper: Stepper
    duration: float
    dt: float
    controls: Controls = None


def as_inputs(controls: PyTree) -> Inputs:
    """Return controls, a policy or inputs as inputs.

    Raises:
        TypeError, ValueError: the memory of a policy has leaves that are no numbers.
    """
    inputs = controls if isinstance(controls, Inputs) else Inputs(controls)
    check_number_leaves("memory", inputs.memory)
    return inputs

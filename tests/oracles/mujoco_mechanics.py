"""What MuJoCo C computes of a robot, too, and how far the two are apart."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxcontact as jc
from jaxcontact.mechanics import actuators


def everything(model, state, controls, at):
    """All that MuJoCo computes too, of one state."""
    structure, q, v = model.structure, state.q, state.v
    number, kinematics = len(structure.bodies), model.system.mechanics.kinematics(structure, q, model.params)
    found = {
        "frames": jc.forward_kinematics(model, q),
        "M": jc.mass_matrix(model, q),
        "bias": model.system.mechanics.bias(structure, kinematics, v, model.params),
        "passive": actuators.passive_forces(structure, q, v, model.params),
        "drive": jc.actuator_forces(model, state, controls),
        "jacobians": [jc.point_jacobian(model, q, b, at) for b in (number - 1, number // 2)],
        "kinetic": jc.kinetic_energy(model, state),
        "potential": jc.potential_energy(model, state),
    }
    return found


def mujoco_everything(mj, data, at):
    """The same by MuJoCo."""
    M = np.zeros((mj.nv, mj.nv))
    for row, basis in zip(M, np.eye(mj.nv), strict=True):
        mujoco.mj_mulM(mj, data, row, basis)
    jacobians = []
    for b in (mj.nbody - 1, (mj.nbody - 1) // 2 + 1):
        J = np.zeros((3, mj.nv))
        place = data.xpos[b] + data.xmat[b].reshape(3, 3) @ at
        mujoco.mj_jac(mj, data, J, None, place, b)
        jacobians.append(J)
    return {
        "frames": (data.xpos[1:], data.xmat[1:].reshape(-1, 3, 3)),
        "M": M,
        "bias": data.qfrc_bias - data.qfrc_gravcomp,
        "passive": data.qfrc_passive - data.qfrc_gravcomp,
        "drive": data.qfrc_actuator,
        "jacobians": jacobians,
        "kinetic": data.energy[1],
        "potential": data.energy[0] + (mj.body_gravcomp * mj.body_mass) @ data.xipos @ mj.opt.gravity,
    }


def random_data(rng, mj):
    """MuJoCo's data at a random state under random controls."""
    data = mujoco.MjData(mj)
    mujoco.mj_integratePos(mj, data.qpos, rng.normal(size=mj.nv), 1.0)
    data.qvel[:] = 3.0 * rng.normal(size=mj.nv)
    data.ctrl[:] = rng.normal(size=mj.nu)
    mujoco.mj_forward(mj, data)
    return data


def state_of(data):
    return jc.State(q=jnp.asarray(data.qpos.copy()), v=jnp.asarray(data.qvel.copy()), t=jnp.array(0.0))


def relative_error(found, expected):
    scale = np.max(np.abs(expected)) or 1.0
    return np.max(np.abs(np.asarray(found) - expected)) / scale


def worst_errors(mj, model, rng, states):
    """Largest difference of every quantity at random states, relative to its largest entry."""
    mj.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    at = np.array([0.1, -0.2, 0.3])
    ours = jax.jit(everything)
    worst: dict[str, float] = {}
    for _ in range(states):
        data = random_data(rng, mj)
        # Without actuators controls are generalized forces, of which MuJoCo's actuators have none.
        controls = jnp.asarray(data.ctrl.copy()) if mj.nu else jnp.zeros(model.num_controls)
        found = ours(model, state_of(data), controls, jnp.asarray(at))
        errors = jax.tree.map(relative_error, found, mujoco_everything(mj, data, at))
        for what, error in errors.items():
            worst[what] = max(worst.get(what, 0.0), float(np.max(error)))
    return worst

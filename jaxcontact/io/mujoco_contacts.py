"""Contacts of a running MuJoCo simulation as matrices, so that impact laws apply to any MuJoCo model."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any  # Any: MuJoCo is optional

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_not_empty, check_number
from jaxcontact.front_door import NOT_NEGATIVE, checked
from jaxcontact.io.mujoco_package import mujoco_package
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from types import ModuleType

    from jaxtyping import Float


@checked(touching=NOT_NEGATIVE)
def from_mujoco(mj_model: Any, mj_data: Any, *, touching: float = 1e-3) -> tuple[ContactTerms, jax.Array]:
    """Return the mass matrix and the contacts that MuJoCo finds at the configuration of its data.

    MuJoCo detects contacts up to the gap `touching` on a copy of the data; all its shapes are allowed. Its
    normal points from the first to the second geom, so the second geom is body a of this package. Velocities
    have the same meaning in both, free joints included: linear in the world, angular in body axes. Joint
    limits, equalities and tendons are not contacts.

    Args:
        mj_model: a mujoco.MjModel.
        mj_data: its mujoco.MjData; only positions and velocities are read.
        touching: contacts with a smaller gap are active, m.

    Returns:
        ContactTerms with nt = 2 tangents, in the order of MuJoCo's contacts, and the velocity v (nv,).
        Friction is that of the first tangent, or 0 for a contact without friction (condim 1). Torsional and
        rolling friction are ignored.

    Raises:
        ImportError: the package mujoco is not installed.
        TypeError: arguments that are not a MjModel and a MjData.
        ValueError: touching < 0, or no contact is that near, or a contact with a flex or a running surface.

    Derivative: none by the numbers of the model; impact laws have derivatives by the returned terms and v.
    """
    mujoco = mujoco_package("from_mujoco")
    for name, value, kind in (("mj_model", mj_model, mujoco.MjModel), ("mj_data", mj_data, mujoco.MjData)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected mujoco.{kind.__name__}, got {type(value).__name__}")
    check_number("touching", touching, 0.0)
    model, data = copy.copy(mj_model), copy.copy(mj_data)
    for margin in (model.geom_margin, model.pair_margin, model.body_margin):  # the last is of bounding boxes
        margin[:] = np.maximum(margin, touching)
    mujoco.mj_fwdPosition(model, data)
    contacts = data.contact
    if not data.ncon:
        raise ValueError(f"mj_data: MuJoCo finds no contact within touching = {touching:g} m")
    pairs = np.asarray(contacts.geom).reshape(-1, 2)
    if np.any(pairs < 0):
        raise ValueError("mj_data: contacts of a flex are not supported")
    if np.any(getattr(model, "geom_surfacevel", np.zeros(model.ngeom))[pairs]):
        raise ValueError("mj_data: contacts of a surface that runs (surfacevel) are not supported")
    rows = [
        _velocity_rows(mujoco, model, data, pair, point, frame.reshape(3, 3))
        for pair, point, frame in zip(pairs, contacts.pos, contacts.frame, strict=True)
    ]
    J = np.stack(rows)
    M = np.zeros((model.nv, model.nv))
    for column, basis in zip(M, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, column, basis)
    gap = np.array(contacts.dist)
    friction = np.where(np.asarray(contacts.dim) > 1, np.asarray(contacts.friction)[:, 0], 0.0)
    terms = ContactTerms(
        M=jnp.asarray(0.5 * (M + M.T)),
        J_n=jnp.asarray(J[:, 0]),
        J_t=jnp.asarray(J[:, 1:]),
        phi=jnp.asarray(gap),
        mu=jnp.asarray(friction),
        active=jnp.asarray(gap <= touching),
    )
    return terms, jnp.asarray(np.array(data.qvel))


@checked(v_plus=check_not_empty)
def to_mujoco(v_plus: Float[jax.Array, " nv"]) -> np.ndarray:
    """Convert the velocity v+ (nv,) after an impact to MuJoCo's qvel (nv,), for `mj_data.qvel[:]`.

    Both packages use the same conventions, so this function only copies v+ to the host, in double precision.
    """
    return np.asarray(v_plus, dtype=np.float64)


def _velocity_rows(
    mujoco: ModuleType, model: PyTree, data: PyTree, pair: np.ndarray, point: np.ndarray, frame: np.ndarray
) -> np.ndarray:
    """Compute velocity rows (3, nv) of the second geom's point relative to the first's, along n, t1, t2."""
    ends = np.zeros((2, 3, model.nv))
    for jacobian, geom in zip(ends, pair, strict=True):
        mujoco.mj_jac(model, data, jacobian, None, point, model.geom_bodyid[geom])
    return frame @ (ends[1] - ends[0])

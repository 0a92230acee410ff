"""Checks of the compliant step against clarabel, in other units, and of a free body that spins.

With impulses p, A = G M^-1 G^T and slopes S = h (h K + B) of the rows the step is the dual program
min p^T (A + S^-1) p / 2 - b^T p over limits p >= 0 and cones |p_t| <= mu p_n: convex, and v+ is unique.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import jaxcontact as jc
from benchmarks.fuzz import oracles
from benchmarks.fuzz.rounds import DTYPES, compiled
from benchmarks.fuzz.tally import Tally
from jaxcontact.terms import BILATERAL, LIMIT, NORMAL, TANGENT

SIZE, NV, ASKED = 64, 6, 8  # problems of a round, coordinates, problems that clarabel solves, too
KINDS = {
    "plane": (BILATERAL, LIMIT) + (NORMAL, TANGENT) * 2,
    "space": (LIMIT,) + (NORMAL, TANGENT, TANGENT) * 2,
}
VELOCITY = {np.float32: 3e-2, np.float64: 1e-5}  # relative to the largest speed of the step


def _solve(problem: jc.compliant.Problem) -> tuple[Any, Any]:
    return jc.compliant.solve(problem, settings=jc.compliant.Settings(cone="associated"))


def _numbers(rng: np.random.Generator, kind: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """Random problems (SIZE, ...) in SI units; a row's stiffness and damping fit its apparent mass."""
    rows, nc = len(kind), kind.count(NORMAL)
    heads = len([k for k in kind if k != TANGENT])
    G = rng.normal(size=(SIZE, rows, NV))
    for k in np.flatnonzero(rng.random(SIZE) < 0.3):  # redundant: the second contact repeats the first
        axes = (rows - heads) // nc + 1
        G[k, rows - axes :] = G[k, rows - 2 * axes : rows - axes]
    M = np.zeros((SIZE, NV, NV))
    for k in range(SIZE):
        axes_, _ = np.linalg.qr(rng.normal(size=(NV, NV)))
        M[k] = (axes_ * 10.0 ** rng.uniform(-1, 1, NV)) @ axes_.T
    phi = rng.normal(size=(SIZE, rows)) * 10.0 ** rng.uniform(-6, -2, (SIZE, 1))
    tangent = np.array([k == TANGENT for k in kind])
    return {
        "M": 0.5 * (M + np.swapaxes(M, 1, 2)),
        "v": rng.normal(size=(SIZE, NV)) * (rng.random((SIZE, 1)) < 0.9),
        "f": 10.0 * rng.normal(size=(SIZE, NV)),
        "G": G,
        "phi": np.where(tangent, 0.0, phi),
        "gdot_v": rng.normal(size=(SIZE, rows)),
        "mu": rng.choice([0.0, 0.3, 1.0, 5.0], (SIZE, nc)),
        "stiffness": 10.0 ** rng.uniform(0, 10, (SIZE, heads)),
        "damping": 10.0 ** rng.uniform(-1, 4, (SIZE, heads)),
        "friction_damping": 10.0 ** rng.uniform(2, 8, (SIZE, nc)),
        "dt": 10.0 ** rng.uniform(-4, -1, SIZE),
    }


POWERS = {  # of mass, length and time in each number
    "M": (1, 0, 0), "v": (0, 1, -1), "f": (1, 1, -2), "G": (0, 0, 0), "phi": (0, 1, 0), "gdot_v": (0, 1, -2),
    "mu": (0, 0, 0), "stiffness": (1, 0, -2), "damping": (1, 0, -1), "friction_damping": (1, 0, -1),
    "dt": (0, 0, 1),
}  # fmt: skip


def _problem(numbers: dict[str, np.ndarray], kind: tuple[Any, ...], dtype: Any) -> jc.compliant.Problem:
    n = {name: jnp.asarray(a, dtype) for name, a in numbers.items()}
    law = jc.compliant.Material(
        stiffness=n["stiffness"], damping=n["damping"], friction_damping=n["friction_damping"]
    )
    terms = jc.ConstraintTerms(G=n["G"], phi=n["phi"], gdot_v=n["gdot_v"], mu=n["mu"], kind=kind)
    return jc.compliant.Problem(M=n["M"], v=n["v"], f=n["f"], terms=terms, material=law, dt=n["dt"])


def _velocities(n: dict[str, np.ndarray], force: np.ndarray) -> np.ndarray:
    """v+ (B, nv) under the constraint forces (B, nr)."""
    push = n["f"] + np.einsum("bri,br->bi", n["G"], force)
    return n["v"] + n["dt"][:, None] * oracles.solve(n["M"], push[..., None])[..., 0]


def _rows(n: dict[str, np.ndarray], kind: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Impulse at rest and its loss per rate, (B, nr) each: p = offset - slope G v+ before projection."""
    h = n["dt"][:, None]
    head = np.cumsum([k != TANGENT for k in kind]) - 1
    contact = np.maximum(np.cumsum([k == NORMAL for k in kind]) - 1, 0)
    tangent = np.array([k == TANGENT for k in kind])
    stiffness = np.where(tangent, 0.0, n["stiffness"][:, head])
    rate = np.where(tangent, n["friction_damping"][:, contact], h * stiffness + n["damping"][:, head])
    return h * (-stiffness * n["phi"] - rate * h * n["gdot_v"]), h * rate


def by_clarabel(n: dict[str, np.ndarray], kind: tuple[Any, ...], k: int) -> tuple[np.ndarray, float] | None:
    """v+ (nv,) of problem k from the dual program, and its error in the norm of M by the duality gap.

    None where clarabel does not reach its precision.
    """
    import clarabel

    offset, slope = (a[k] for a in _rows(n, kind))
    G, M, h = n["G"][k], n["M"][k], n["dt"][k]
    free = n["v"][k] + h * np.linalg.solve(M, n["f"][k])
    A = G @ np.linalg.solve(M, G.T)
    # Impulses in units of the apparent mass of their direction times the largest speed around.
    axes = kind.count(TANGENT) // kind.count(NORMAL) + 1
    scale = 1.0 / np.sqrt(np.diagonal(A))
    first = len(kind) - kind.count(NORMAL) * axes
    scale[first:] = np.repeat(scale[first::axes], axes)  # one unit per cone
    rest = offset / slope  # rate at which a row has no impulse
    # A limit whose gap is open ends the step at the gap zero with any impulse up to that of its law there, in
    # a second variable, or closed with more.
    stop = -(n["phi"][k] + h * h * n["gdot_v"][k]) / h
    gates = [i for i, one in enumerate(kind) if one == LIMIT and n["phi"][k][i] > 0]
    most = ((offset - slope * stop) / scale)[gates]
    rest[gates] = stop[gates]
    rows_of = np.concatenate([np.arange(len(kind)), np.array(gates, int)])
    give = np.concatenate([1.0 / slope, np.zeros(len(gates))])
    scales = scale[rows_of]
    Q = (A[np.ix_(rows_of, rows_of)] + np.diag(give)) * scales[:, None] * scales[None]
    b = (rest - G @ free)[rows_of] * scales
    unit = np.abs(b / np.diagonal(Q)).max() or 1.0
    rows, cones = [], []
    eye = np.eye(len(rows_of))
    for i, one in enumerate(kind):
        if one == LIMIT:
            rows.append(-eye[i])
            cones.append(clarabel.NonnegativeConeT(1))
        elif one == NORMAL:
            mu = n["mu"][k][kind[: i + 1].count(NORMAL) - 1]
            rows += [-mu * eye[i], *(-eye[i + j] for j in range(1, axes))]
            cones.append(clarabel.SecondOrderConeT(axes))
            rows.append(-eye[i])
            cones.append(clarabel.NonnegativeConeT(1))
    rhs = np.zeros(len(rows) + 2 * len(gates))
    for j, bound in enumerate(most):
        rhs[len(rows) + 1] = bound / unit
        rows += [-eye[len(kind) + j], eye[len(kind) + j]]
        cones.append(clarabel.NonnegativeConeT(2))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    answer = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(Q)), -b / unit, sparse.csc_matrix(np.array(rows)), rhs, cones, settings
    ).solve()
    if str(answer.status) not in ("Solved", "AlmostSolved"):
        return None
    p = np.bincount(rows_of, np.asarray(answer.x) * unit * scales)
    # The program of v+ is strongly convex, with the constant one in the norm of M.
    error = np.sqrt(2.0 * abs(answer.obj_val - answer.obj_val_dual)) * unit
    return free + np.linalg.solve(M, G.T @ p), float(error)


def compliant(seed: int) -> Tally:
    """`compliant.solve`: clarabel's answer, the cone, other units."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[int(rng.integers(2))]
    bits = "f32" if dtype is np.float32 else "f64"
    kind = KINDS["plane" if rng.random() < 0.5 else "space"]
    tally = Tally()
    n = _numbers(rng, kind)
    factors = 2.0 ** rng.integers(-20, 21, 3)

    def rounded(a: np.ndarray) -> np.ndarray:
        return np.asarray(np.asarray(a, dtype), float)

    n = {name: rounded(a) for name, a in n.items()}
    lam, info = compiled(_solve)(_problem(n, kind, dtype))
    good = tally.count(info.status)
    force = np.asarray(lam, float)
    v_plus = _velocities(n, force)
    free = _velocities(n, 0.0 * force)
    speed = np.maximum(oracles.mass_norm(n["M"], v_plus), oracles.mass_norm(n["M"], n["v"]))
    speed = np.maximum(speed, oracles.mass_norm(n["M"], free)) + 1e-300
    for k in np.flatnonzero(good)[:ASKED]:
        other = by_clarabel(n, kind, k)
        if other is not None:
            apart = oracles.mass_norm(n["M"][k], other[0] - v_plus[k]) - other[1]
            tally.judge(f"clarabel {bits}", apart / speed[k], VELOCITY[dtype], note=f"problem {k}")
    spoilt = rng.random(SIZE) < 0.1
    bad = n | {"v": np.where(spoilt[:, None], np.nan, n["v"])}
    other, told = compiled(_solve)(_problem(bad, kind, dtype))
    tally.poisoned(spoilt, told.status, other, lam, 16.0 * float(np.finfo(dtype).eps))
    axes = kind.count(TANGENT) // kind.count(NORMAL) + 1
    contacts = force[:, len(kind) - kind.count(NORMAL) * axes :].reshape(SIZE, -1, axes)
    rubbed, bound = np.linalg.norm(contacts[..., 1:], axis=-1), n["mu"] * contacts[..., 0]
    size = np.abs(force).max(axis=1, keepdims=True) + 1e-300
    tally.judge(f"cone {bits}", np.max((rubbed - bound) / size, axis=1), VELOCITY[dtype], good)
    tally.judge(f"pull {bits}", np.max(-contacts[..., 0] / size, axis=1), VELOCITY[dtype], good)
    scaled = {name: a * np.prod(factors ** np.array(POWERS[name])) for name, a in n.items()}
    lam, told = compiled(_solve)(_problem({k: rounded(a) for k, a in scaled.items()}, kind, dtype))
    moved = _velocities(n, np.asarray(lam, float) / np.prod(factors ** np.array([1.0, 1.0, -2.0])))
    fine = good & ((np.asarray(told.status) & np.uint32(int(jc.Status.FAILURES))) == 0)
    apart = oracles.mass_norm(n["M"], moved - v_plus) / speed
    tally.judge(f"units: answer {bits}", apart, 2.0 * VELOCITY[dtype], fine)
    return tally


def _free_poses(structure: Any, q: Any, params: Any) -> tuple[Any, Any]:
    return q[None, :3], jc.rotations.quaternion_matrix(q[3:])[None]


SPINNER = jc.System(
    jc.Structure(
        dim=3, bodies=("body",), num_positions=7, quaternions=(3,),
        shapes=(
            jc.Sphere(name="ball", body="body", radius="radius"),
            jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
        ),
        pairs=(("ball", "floor"),),
    ),
    _free_poses,
)  # fmt: skip


def spin(seed: int) -> Tally:
    """A free body far from anything: energy stays to second order in dt, angular momentum to rounding."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    inertia = rng.uniform(0.2, 1.0, 3)
    inertia = inertia * (1.0 if 2 * inertia.max() <= inertia.sum() else 0.0) + (
        2 * inertia.max() > inertia.sum()
    )
    inertia[0] *= 0.8
    omega, steps, dt = rng.uniform(-3, 3, 3), 256, float(10.0 ** rng.uniform(-3, -2.2))
    params = jc.Params(
        mass=jnp.array([1.0]), inertia=jnp.asarray(inertia)[None], mu=jnp.array(0.5), gravity=jnp.zeros(3),
        constants={"radius": jnp.array(0.1)}, material=jc.compliant.Material(stiffness=1e4, damping=10.0),
    )  # fmt: skip
    state = jc.State(
        q=jnp.array([0.0, 0.0, 100.0, 1.0, 0.0, 0.0, 0.0]),
        v=jnp.asarray(np.concatenate([rng.normal(size=3) * 0.1, omega])),
        t=jnp.array(0.0),
    )
    states, info = jc.compliant.rollout(
        jc.Model(system=SPINNER, params=params), state, jnp.zeros((steps, 6)), dt=dt
    )
    good = tally.count(np.bitwise_or.reduce(np.asarray(info.status)))
    w = np.concatenate([omega[None], np.asarray(states.v)[:, 3:]])
    energy = 0.5 * np.sum(inertia * w**2, axis=1)
    angle = np.linalg.norm(omega) * dt
    tally.judge("energy of spin", np.max(np.abs(energy / energy[0] - 1.0)), angle**2 / 12, good)
    turn = np.asarray(jax.vmap(jc.rotations.quaternion_matrix)(states.q[:, 3:]))
    momentum = np.einsum("tij,tj->ti", turn, inertia * w[1:])
    drift = np.linalg.norm(momentum - inertia * omega, axis=1).max() / np.linalg.norm(inertia * omega)
    tally.judge("angular momentum", drift, 1e-12, good)
    return tally

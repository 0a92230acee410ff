"""The forces of one step: from algebra to lam, with residuals, status and the derivative of the solution."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit, small_dense
from jaxcontact.algebra.block_tridiagonal import BlockTridiagonal
from jaxcontact.algebra.body_rows import BodyRows
from jaxcontact.algebra.tree_rows import TreeRows
from jaxcontact.arguments import check_type
from jaxcontact.compliant import coulomb, min_norm
from jaxcontact.compliant.energy import gains_energy
from jaxcontact.compliant.problem import (
    Problem,
    by_axis,
    by_contact,
    convex_program,
    count_rows,
    damping_of,
    row_material,
    stretch_after,
)
from jaxcontact.compliant.settings import DEFAULT, Settings, StepMemory
from jaxcontact.front_door import checked
from jaxcontact.precision import jit
from jaxcontact.solvers import cone_newton, cone_program, row_algebra
from jaxcontact.solvers.cone_program import ConeProgram
from jaxcontact.solvers.coulomb_rows import relax_by_rows
from jaxcontact.status import Info, Status, flag, is_finite
from jaxcontact.terms import DRY

LIFTS = ("associated", "pyramid")  # cones that lift what slides
TANGENT_STEPS = 4  # of the method of multipliers in a derivative


class StepInfo(Info):
    """What a step says beside its result.

    Forces in N, nk constraints as in `Material`, nr rows as in the terms.

    Attributes:
        status: uint32 bits of `Status`.
        lam: (nr,) constraint forces.
        gap: (nk,) predicted deviation, slack or gap at the end of the step, m.
        slip: (nc, nt) tangential velocity of each contact at the end of the step, m/s.
        signorini: worst violation of 0 <= lam_n, complementary to the normal law, N.
        joint: worst violation of the law of a bilateral or dry row, N.
        cone: worst |lam_t| - mu lam_n where positive, N.
        dissipation: worst violation of the friction law (maximal dissipation), N.
        residual: |M (v+ - v) - h (f + G^T lam)| relative to the momenta in the step.
        num_iters: Newton steps.
        seen: (nc,) bool, the contacts that the step saw: all of them without `max_contacts`; with it the
            nearest, of convex pairs those that may meet in the step. The others have no force or slip, and as
            `gap` that at the start of the step, or a lower bound of it.
        stretch: (nc, nt) of the friction springs at the end of the step, m; None where it has none.
    """

    lam: jax.Array
    gap: jax.Array
    slip: jax.Array
    signorini: jax.Array
    joint: jax.Array
    cone: jax.Array
    dissipation: jax.Array
    seen: jax.Array
    stretch: jax.Array | None = None

    @property
    def memory(self) -> StepMemory:
        """Return what the next step starts from, without derivative by the forces."""
        return StepMemory(forces=lax.stop_gradient(self.lam), stretch=self.stretch)


def program_of(problem: Problem, cone: str, cap: float | None = None) -> ConeProgram:
    """Make the program of a step; `cap` is the largest slope times mobility, None that of convex programs."""
    # A cone that lifts what slides pushes across a gap: gates on its contacts have no single solution.
    gate = "all" if cone == "coulomb" else "limits"
    rows = row_material(problem, cone in LIFTS)
    return convex_program(problem, rows, pyramid=cone == "pyramid", gate=gate, cap=cap)


def _search(
    problem: Problem, start: jax.Array, settings: Settings, tree_rows: TreeRows | None
) -> tuple[jax.Array, ...]:
    """Search for (v+, p, iterations, converged), without derivative."""
    problem, start = lax.stop_gradient((problem, start))
    program, solver = program_of(problem, settings.cone), settings.solver
    if settings.cone == "coulomb" and problem.terms.mu.shape[0]:
        exact = program_of(problem, settings.cone, coulomb.cap_of(start.dtype))
        exact = exact.replace(tree_rows=tree_rows)
        return coulomb.solve_coulomb_step(exact, program, solver.max_iters, solver.early_exit)
    solution = cone_newton.solve_cone_program(program, start, solver.max_iters, solver.early_exit)
    return solution.x, solution.p, solution.iterations, solution.converged


def _relax(problem: Problem, settings: Settings) -> tuple[jax.Array, ...]:
    """Find (v+, p, iterations, converged) on the central path, with derivatives."""
    exact = coulomb.couple_friction(program_of(problem, settings.cone, coulomb.cap_of(problem.v.dtype)))
    # A number that is not positive has no central path: its lane is INVALID and computes one anyway.
    k = jnp.asarray(problem.material.smoothing, problem.v.dtype)
    k = jnp.where(k > 0, k, 1.0)
    num_dry, solver = problem.terms.kind.count(DRY), settings.solver
    found = relax_by_rows(exact, num_dry, k, min(coulomb.INTERIOR_STEPS, solver.max_iters), solver.early_exit)
    return found.x, found.p, found.iterations, found.converged


def _conditions(problem: Problem, cone: str) -> ConeProgram:
    """Make the program whose `residuals` vanish at the solution."""
    program = program_of(problem, cone)
    return coulomb.couple_friction(program) if cone == "coulomb" else program


def _attach(problem: Problem, x: jax.Array, p: jax.Array, cone: str) -> tuple[jax.Array, jax.Array]:
    """Give the solution (x, p) the derivatives of its equations by the problem."""

    def residual(problem: Problem, at: PyTree) -> tuple[jax.Array, jax.Array]:
        return cone_program.residuals(_conditions(problem, cone), at[0], at[1], solved=True)[:2]

    def correct(problem: Problem, at: PyTree, misfits: PyTree) -> tuple[jax.Array, jax.Array]:
        program = _conditions(problem, cone)
        response = cone_program.residuals(program, at[0], at[1], solved=True)[2]
        hessian = cone_program.hessian(program, response)
        invert: Callable[[jax.Array], jax.Array]
        if isinstance(hessian, BlockTridiagonal):
            invert = functools.partial(row_algebra.solve_factored, row_algebra.factorise(hessian))
        elif cone == "coulomb":  # not symmetric
            invert = functools.partial(jnp.matmul, small_dense.generalized_inverse(hessian)[0])
        else:
            invert = implicit.spd_solver(hessian)
        momentum, misfit = misfits
        dx, dp = cone_program.solve_linearised(program, response, invert, momentum, misfit, TANGENT_STEPS)
        return -dx, -dp

    return implicit.attach(residual, correct, problem, (x, p))


def _check_problem(problem: Problem, warm_start: jax.Array | None) -> None:
    """Raise ValueError if the arrays do not fit together."""
    by_body = isinstance(problem.terms.G, BodyRows)  # made for a mechanism, not by hand
    nr, nv = (len(problem.terms.kind), problem.v.size) if by_body else jnp.shape(problem.terms.G)
    _, _, nc, axes = count_rows(problem.terms.kind)
    nd = problem.terms.kind.count(DRY)
    if problem.stretch is not None and problem.material.friction_spring is None:
        raise ValueError("stretch: expected None where the material has no friction_spring, got an array")
    shapes: dict[str, tuple[PyTree, tuple[int, ...]]] = {
        **({} if by_body else {"M": (problem.M, (nv, nv))}),
        "v": (problem.v, (nv,)),
        "f": (problem.f, (nv,)),
        "terms.phi": (problem.terms.phi, (nr,)),
        "terms.gdot_v": (problem.terms.gdot_v, (nr,)),
        "terms.mu": (problem.terms.mu, (nc,)),
        "terms.dry": (np.zeros(0) if problem.terms.dry is None else problem.terms.dry, (nd,)),
        "terms.kind": (np.zeros(len(problem.terms.kind)), (nr,)),
        "warm_start": (problem.terms.phi if warm_start is None else warm_start, (nr,)),
        **({} if problem.stretch is None else {"stretch": (problem.stretch, (nc, axes - 1))}),
    }
    for name, (value, shape) in shapes.items():
        if jnp.shape(value) != shape:
            raise ValueError(f"{name}: expected shape {shape}, got {jnp.shape(value)}")


def _bad_numbers(problem: Problem) -> jax.Array:
    """Decide whether a stiffness, damping or friction is not >= 0, or a mass or the time step not > 0."""
    material = problem.material
    bad = ~(problem.dt > 0) | ~jnp.all(row_algebra.diagonal(problem.M) > 0)
    numbers = [
        *jax.tree.leaves(material.stiffness),
        damping_of(problem),
        material.friction_damping,
        problem.terms.mu,
    ]
    numbers += [number for number in (material.friction, problem.terms.dry) if number is not None]
    if material.smoothing is not None:
        bad = bad | ~(jnp.asarray(material.smoothing) > 0)
    numbers += jax.tree.leaves(material.friction_spring)
    for number in numbers:
        bad = bad | ~jnp.all(jnp.asarray(number) >= 0)
    return bad


def solve_velocity(
    problem: Problem, warm_start: jax.Array | None, settings: Settings, tree_rows: TreeRows | None = None
) -> tuple[jax.Array, StepInfo]:
    """Compute v+ (nv,) and StepInfo of a step; see `solve`. `tree_rows` are its contacts by the tree."""
    check_type("problem", problem, Problem)
    terms = problem.terms
    if terms.surface is not None:  # a rate beside G v, as h Gdot v is
        still = terms.replace(
            gdot_v=terms.gdot_v + terms.surface / problem.dt, surface=None, surface_before=None
        )
        before = terms.surface if terms.surface_before is None else terms.surface_before
        problem = problem.replace(terms=still, beside=before)
        v, info = solve_velocity(problem, warm_start, settings, tree_rows)
        nb, nl, nc, axes = count_rows(terms.kind)
        running = terms.surface[nb + nl :].reshape(nc, axes)[:, 1:]
        return v, info.replace(slip=info.slip + running)
    check_type("settings", settings, Settings)
    _check_problem(problem, warm_start)
    paper = settings.formulation == "min_norm"
    if paper and problem.terms.mu.shape[0] and settings.cone != "coupled":
        raise ValueError(f"cone: with contacts 'min_norm' has the cone 'coupled' only, got {settings.cone!r}")
    if paper and DRY in problem.terms.kind:
        raise ValueError("formulation: 'min_norm' has no dry friction of joints; use 'complementary'")
    if problem.material.smoothing is not None and (
        settings.cone != "coulomb" or problem.material.potential is not None
    ):
        raise ValueError(
            'material.smoothing: expected None without cone="coulomb" or with a potential, got a number'
        )
    start = jnp.zeros_like(problem.terms.phi) if warm_start is None else problem.dt * warm_start
    start = by_axis(start, problem.terms.kind)
    if paper:
        x, p, iterations, converged = min_norm.solve_min_norm(
            problem, settings.solver.max_iters, settings.solver.early_exit, settings.zeta
        )
    elif problem.material.smoothing is not None and problem.terms.mu.shape[0]:
        x, p, iterations, converged = _relax(problem, settings)
    else:
        x, p, iterations, converged = _search(problem, start, settings, tree_rows)
        x, p = _attach(problem, x, p, settings.cone)
    return x, _make_info(problem, x, p, iterations, converged, settings)


def _make_info(
    problem: Problem,
    x: jax.Array,
    p: jax.Array,
    iterations: jax.Array,
    converged: jax.Array,
    settings: Settings,
) -> StepInfo:
    """Measure a solution (x, p) of a step: gaps, slips, violations of its laws, status."""
    cone = settings.cone
    terms, h = problem.terms, problem.dt
    nb, nl, nc, axes = count_rows(terms.kind)
    heads, nd = slice(nb + nl, nb + nl + nc), terms.kind.count(DRY)
    program = _conditions(problem, cone)
    momentum, misfit, _ = cone_program.residuals(program, x, p)
    u = row_algebra.apply_rows(program.columns, x)
    future = (by_axis(terms.phi + h * h * terms.gdot_v, terms.kind) + h * u)[: heads.stop]
    tangent, slip = (rows[heads.stop :].reshape(axes - 1, nc) for rows in (p, u))
    excess = jnp.sqrt(jnp.sum(tangent**2, axis=0)) - program.mu * p[heads]

    def worst(values: jax.Array) -> jax.Array:
        return lax.stop_gradient(jnp.max(jnp.abs(values), initial=0.0) / h)

    moved = jnp.max(jnp.abs(row_algebra.multiply(problem.M, x))) + jnp.max(
        jnp.abs(row_algebra.multiply(problem.M, problem.v))
    )
    scale = moved + jnp.max(jnp.abs(program.push)) + jnp.finfo(x.dtype).tiny
    gap = jnp.concatenate([future[: nb - nd], future[nb:]]) if nd else future
    signorini = worst(misfit[nb : heads.stop])
    finite = is_finite((x, p, momentum, gap, signorini, excess))
    # Single precision can settle far from balance where stiff contacts are redundant: that is no success.
    # Momenta next to the smallest number have few digits.
    precision = jnp.finfo(x.dtype)
    off_balance = jnp.max(jnp.abs(momentum)) > precision.eps**0.5 * (scale + precision.tiny / precision.eps)
    unsolved = ~converged | off_balance
    searched = settings.formulation == "min_norm" or cone == "coulomb"  # these judge their forces themselves
    if precision.bits < 64 and not searched:
        # In single precision, forces of stiff contacts can be far from their law with the right velocities.
        violation = jnp.maximum(jnp.max(jnp.abs(misfit), initial=0.0), jnp.max(excess, initial=0.0))
        largest = jnp.max(jnp.abs(p), initial=0.0)
        unsolved |= violation > precision.eps**0.25 * largest + precision.eps * scale
    status = flag(~finite, Status.NONFINITE) | flag(finite & unsolved, Status.MAX_ITERS)
    status = status | flag(_bad_numbers(problem), Status.INVALID)
    if settings.formulation != "min_norm" and problem.material.smoothing is None:  # others do not keep it
        status = status | flag(finite & gains_energy(problem, program, x, p), Status.ENERGY)
    return StepInfo(
        status=status,
        lam=by_contact(p, terms.kind) / h,
        gap=gap,
        slip=slip.T,
        signorini=signorini,
        joint=worst(misfit[:nb]),
        cone=worst(jnp.maximum(excess, 0.0)),
        dissipation=worst(misfit[heads.stop :]),
        residual=lax.stop_gradient(jnp.max(jnp.abs(momentum)) / scale),
        num_iters=iterations,
        seen=jnp.ones(nc, bool),
        stretch=stretch_after(problem.material, problem.stretch, tangent.T / h, h),
    )


@checked()
@functools.partial(jit, static_argnames="settings")
def solve(
    problem: Problem, warm_start: jax.Array | None = None, *, settings: Settings = DEFAULT
) -> tuple[jax.Array, StepInfo]:
    """Compute constraint forces of one step of springs, dampers and friction, as stiff as one likes.

    With A = G M^-1 G^T, D = h^2 K + h B and c as in `Problem`: bilateral rows (I + D A) lam = c; limits and
    normals 0 <= lam, (I + D A) lam - c >= 0, complementary (Drumwright's law (68), not his program (83-85));
    dry joints -B u held within |lam| <= their bound;
    friction -B_t u_t inside the cone |lam_t| <= mu lam_n:

    - "coulomb", the default: |lam_t| <= mu lam_n with the normal force of this step, against the slip with
      all of mu lam_n; no force on a contact whose gap stays open through the step. Not convex: where several
      solutions exist, as in a jam, it is the one that Newton's method finds from `problem.v`, where contacts
      that slide go on sliding. `warm_start` has no influence.
    - "associated": one convex problem, unique, for proofs and long chains of bodies. Friction is
      right, but sliding lifts the normal law by mu |u_t|: a gap of (h + B / K) mu |u_t|, and what cannot lift
      jams. Contacts push across a gap of (B / K) |u_n|.
      With `ScaledSprings` friction has the mass and damper of the normal, as in MuJoCo, and creeps.
    - "pyramid": associated, with |lam_t1| <= mu lam_n and |lam_t2| <= mu lam_n: friction up to sqrt(2) mu.
    - "coupled", with formulation="min_norm": the paper's QCQP (181-198), wrong while sliding; for comparison.

    Args:
        problem: the algebra of the step.
        warm_start: (nr,) forces of the last step, N.
        settings: cone (see above), formulation and limits.

    Returns:
        lam (nr,) in N and StepInfo.

    Raises:
        TypeError: something else than a Problem.
        ValueError: settings that the rows do not have, shapes or row orders that do not fit.

    Status: MAX_ITERS where the conditions are not met or the momenta are not in
        balance to the square root of the precision, NONFINITE, INVALID for negative stiffness, damping or
        friction, masses or dt that are not positive, and ENERGY where a step gains more than the work done
        on it (not for "min_norm"; see `energy.py`).

    Derivative: of the conditions at the solution, forward and reverse, by everything but `warm_start`; at a
        change of mode that of the mode found. Any order. None for "min_norm".
    """
    _, info = solve_velocity(problem, warm_start, settings)
    return info.lam, info

"""Samples by Lemke's method in machine code, on a CPU in double precision.

Owns what all steps of an impact share, and the covering vectors of each; entry `LemkeOnHost`. Page:
docs/methods/impacts-in-space.md.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    ImpactInfo,
    cone_facets,
    contact_space,
    friction_directions,
    slowest_approach,
)
from jaxcontact.impact.laws.pivoting import impact_lcp, random_cover
from jaxcontact.impact.laws.routh_steps import ImpactDraws
from jaxcontact.precision import jit
from jaxcontact.solvers.lcp import Lemke
from jaxcontact.solvers.lemke_dictionary import generic_vectors
from jaxcontact.solvers.machine_code import load_machine_code
from jaxcontact.solvers.scaling import scales
from jaxcontact.terms import ContactTerms

FURTHER = 32  # searches of a step that is checked, which count what its own searches missed
ROUND = 8  # steps for which covering vectors are drawn together; most impacts end within


def is_offered(v: jax.Array) -> bool:
    """Tell whether this process has machine code for numbers of this dtype."""
    return v.dtype == np.float64 and load_machine_code("lemke_code") is not None


class LemkeOnHost:
    """The steps of one impact, for samples that start with velocity v."""

    def __init__(self, terms: ContactTerms, v: jax.Array, num_directions: int, tries: int = 0) -> None:
        self.code = load_machine_code("lemke_code")
        shared = jax.tree.map(np.array, _shared(terms, v, num_directions))
        space, slowest, matrix, rows, columns = shared
        self.space: ContactSpace = space
        self.v, self.tries = np.array(v), tries
        directions = friction_directions(space.num_tangents, num_directions)
        diagonal = np.abs(matrix.diagonal())
        covers, perturbations = generic_vectors(Lemke().retries + 1, len(matrix))
        assert self.code is not None
        self.problem = self.code.StepProblem(
            matrix=rows[:, None] * matrix * columns,
            rows=rows,
            columns=columns,
            effects=np.where(diagonal > 0, diagonal, np.abs(matrix).max(axis=0)) * columns,
            covers=covers,
            perturbations=perturbations,
            delassus=space.delassus,
            directions=directions,
            slowest=np.where(space.active, slowest, np.inf),
            mu=space.mu,
            facets=cone_facets(directions),
            response=space.response,
            v=np.array(v),
        )

    def resolve(
        self, draws: ImpactDraws, count: int, keeps_path: bool, num_checked: int = 0
    ) -> tuple[np.ndarray, ImpactInfo, np.ndarray | None, np.ndarray]:
        """Resolve the first `count` samples, as `routh.resolve_many`; one not solved has a large residual.

        Some steps of the first `num_checked` samples are searched `FURTHER`; return last, (2, count), how
        many of each sample are, and how many of these have an outcome more.
        """
        assert self.code is not None
        impulse_max, pick = np.asarray(draws.impulse_max)[:count], draws.pick
        limit, (nv, r), rows = pick.shape[1], self.space.response.shape, 1 + self.space.num_tangents
        caps = np.where(self.space.active, impulse_max / self.space.scale[::rows], 0.0)
        square = float(self.v @ self.space.mass @ self.v)
        rates, totals = np.tile(self.space.jacobian @ self.v, (count, 1)), np.zeros((count, r))
        squares, residuals = np.full(count, square), np.zeros(count)
        states, counts, checked, missed = (np.zeros(count, np.int64) for _ in range(4))
        paths = np.tile(self.v, (count * keeps_path, 1 + limit, 1))
        samples = rates, totals, squares, residuals, states, counts, checked, missed
        picks = np.array(pick, float)[:count]
        sizes = len(self.problem.mu), len(self.problem.directions)
        for begin in range(0, limit, ROUND):
            now = slice(begin, min(begin + ROUND, limit))
            covers = np.array(_covers(pick[:, now], *sizes))[:count]
            tries = self.tries, FURTHER if num_checked else 0, num_checked
            orders = caps[:, now].copy(), covers, picks[:, now].copy()
            self.code.solve_steps(self.problem, square, orders, tries, samples, paths)
            if np.all(states != self.code.RUNNING):
                break
        v_plus = np.empty((count, nv))
        self.code.solve_ends(self.problem, self.space.mass, totals, v_plus, squares)
        fields: dict[str, PyTree] = {
            "status": np.zeros(count, np.uint32),
            "residual": np.where(states == self.code.ENDED, residuals, np.inf),
            "impulse": (self.space.scale * totals).reshape(count, -1, rows),
            "energy_ratio": squares / square,
            "num_iters": counts.astype(np.int32),
            "complete": np.zeros(count, bool),
        }
        info, searched = ImpactInfo(**fields), np.stack([checked, missed]).astype(np.int32)
        if not keeps_path:
            return v_plus, info, None, searched
        ends = np.minimum(np.arange(1 + limit), counts[:, None])
        paths = np.take_along_axis(paths, ends[..., None], axis=1)
        return v_plus, info, paths, searched


@functools.partial(jit, static_argnames="num_directions")
def _shared(
    terms: ContactTerms, v: jax.Array, num_directions: int
) -> tuple[ContactSpace, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Compute what all steps share: space, slowest approach, matrix of the problem and its scales."""
    space = contact_space(terms)
    directions = friction_directions(space.num_tangents, num_directions)
    idle = jnp.zeros(space.mu.shape, v.dtype)
    matrix, _ = impact_lcp(space, space.jacobian @ v, directions, idle)
    return space, slowest_approach(space, v), matrix, *scales(matrix, Lemke().scaling_sweeps)


@functools.partial(jit, static_argnames=("num_contacts", "num_directions"))
def _covers(pick: jax.Array, num_contacts: int, num_directions: int) -> jax.Array:
    """Draw covering vectors (samples, steps, n) from picks; in the plane, with two directions, ones."""
    size = num_contacts * (num_directions + 3)
    if num_directions == 2:
        return jnp.ones((*pick.shape, size), pick.dtype)
    return jax.vmap(jax.vmap(lambda number: random_cover(size, number)))(pick)

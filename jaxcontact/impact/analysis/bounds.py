"""Bounds that hold before any sampling: on the number of steps of an impact, and on the number of samples.

Owns two bounds of Halm & Posa: Theorem 8 (steps, `step_bound`) and Lemma 1 (samples, `net_bound`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_count, check_rows
from jaxcontact.front_door import NOT_NEGATIVE, POSITIVE, PROBABILITY, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.assumptions import unique_steps
from jaxcontact.impact.analysis.necessary import cone_generators
from jaxcontact.impact.analysis.pointed_cone import pointed_cone
from jaxcontact.impact.laws.routh_law import FittedRouth, Routh, fitted_law
from jaxcontact.impact.sampling.by_modes import tabulate
from jaxcontact.solvers.strict_inequalities import has_interior
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

FEW_MODES = 7**3  # up to this many modes a linear program tests the region of each for an interior


class StepBound(Record):
    """A bound on the number of steps of an impact, which impacts exceed with a small probability at most.

    Attributes:
        num_steps: the bound; inf if there is none.
        paper: the bound with the constants of eqs (78), (79) as printed; inf if there is none.
        reason: why there is no bound, or "".
        probability: largest probability that an impact takes more steps.
    """

    num_steps: float = static()
    paper: float = static()
    reason: str = static()
    probability: float = static()


@checked(probability=PROBABILITY)
def step_bound(
    terms: ContactTerms, v: Float[jax.Array, " nv"], law: Routh, *, probability: float = 1e-3
) -> StepBound:
    """Bound the number of steps of an impact, up to a small probability (Halm & Posa, Theorem 8).

    The bound needs a pointed friction cone. Take the shortest r with r . M^-1 J^T lam >= |lam_n|_1, eq (77).
    As energy does not grow, sum |lam_n|_1 <= |r|* |v|_M - r . v over all steps, where
    |r|* = sqrt(r^T M^-1 r). Every step after which a contact still approaches adds no less than the smallest
    of m caps, which are uniform in (0, h), h = impulse_step; its mean is h / (m + 1). So Hoeffding's
    inequality bounds the number of steps. This is the proof of Theorem 8 with sharper constants: the printed
    (78), (79) bound |r|* by |r|_2 / sqrt(sigma) and r . v by its size, and round a dimensional speed up to a
    whole number. The bound holds for every choice among solutions.

    Args:
        terms: contact terms.
        v: (nv,) velocity before the impact.
        law: with a uniform density; of one impulse_step per contact the smallest counts.
        probability: largest probability of more steps, in (0, 1).

    Returns:
        StepBound.

    Raises:
        ValueError, TypeError: as `anitescu_potra` and `pointed_cone`; a law with a density; a
            probability out of range.

    Derivative: none; runs on the host.
    """
    fitted = fitted_law(terms, v, law)
    _check_uniform(fitted)
    smallest = float(np.min(np.asarray(fitted.impulse_step)))
    if not 0 < probability < 1:
        raise ValueError(f"probability: expected a number in (0, 1), got {probability}")
    if pointed_cone(terms)[1] <= 0:
        reason = "the friction cone is not pointed: contacts can jam, and no bound follows"
        return StepBound(num_steps=math.inf, paper=math.inf, reason=reason, probability=probability)
    mass, speed_v = np.asarray(terms.M, float), np.asarray(v, float)
    r, size = shortest_push(terms)
    speed = float(np.sqrt(speed_v @ mass @ speed_v))
    m = int(np.sum(np.asarray(terms.active)))
    mean, budget = smallest / (m + 1), size * speed - float(r @ speed_v)
    # The smallest K with exp(-2 (K mean - budget)^2 / (K step^2)) <= probability.
    slack = smallest * math.sqrt(0.5 * math.log(1.0 / probability))
    root = (slack + math.sqrt(slack**2 + 4.0 * mean * budget)) / (2.0 * mean)
    sigma = float(np.linalg.eigvalsh(mass)[0])
    printed = 4 * math.ceil((m + 1) * float(np.linalg.norm(r)) / (smallest * math.sqrt(sigma)))
    return StepBound(
        num_steps=float(math.ceil(root**2)),
        paper=float(printed * math.ceil(speed) + math.ceil((m + 1) ** 2 * math.log(1.0 / probability))),
        reason="",
        probability=float(probability),
    )


def _check_uniform(law: FittedRouth) -> None:
    """Raise ValueError for a law with a density of its own."""
    if law.density is not None:
        raise ValueError("law.density: expected None, for the bound is of uniform draws")


def shortest_push(terms: ContactTerms) -> tuple[np.ndarray, float]:
    """Minimise |r|* = sqrt(r^T M^-1 r) over r (nv,) with r . M^-1 f >= 1 for all generators f."""
    L = np.linalg.cholesky(np.asarray(terms.M, float))
    y = least_distance(push_velocities(terms) @ L)
    return L @ y, float(np.linalg.norm(y))


def push_velocities(terms: ContactTerms) -> np.ndarray:
    """Compute M^-1 f (k, nv) of the generators f of the friction cone of the active contacts."""
    return np.linalg.solve(np.asarray(terms.M, float), cone_generators(terms).T).T


def least_distance(g: np.ndarray) -> np.ndarray:
    """Minimise |y| subject to g y >= 1 (Lawson & Hanson, ch. 23); NaN if no y satisfies it."""
    from scipy.optimize import nnls  # imported late because its import is slow

    unit = np.linalg.norm(g, axis=1)
    rows = np.vstack([(g / unit[:, None]).T, 1.0 / unit])
    target = np.zeros(g.shape[1] + 1)
    target[-1] = 1.0
    residual = rows @ nnls(rows, target)[0] - target
    if not -residual[-1] > 1e-14:
        return np.full(g.shape[1], np.nan)
    y = -residual[:-1] / residual[-1]
    push = float(np.min(g @ y))
    return y / push if push > 0 else np.full(g.shape[1], np.nan)  # removes the tolerance of nnls


class NetBound(Record):
    """Result of Lemma 1: whether samples are an epsilon-net of the reachable velocities.

    Attributes:
        applies: False if the lemma's assumptions fail.
        probability: lower bound on the probability that every reachable velocity lies within epsilon of a
            sample; 0 if the lemma does not apply or the bound is vacuous.
        log10_needed: log10 of the number of samples that would make the probability 0.99; inf if the lemma
            does not apply.
        lipschitz: constant of the map from all caps to the velocity, kg^(-1/2) (|dv|_M per N s).
        num_dimensions: of the cube of draws, steps times active contacts.
        statement: the conclusion in one sentence.
    """

    applies: bool = static()
    probability: float = static()
    log10_needed: float = static()
    lipschitz: float = static()
    num_dimensions: int = static()
    statement: str = static()


@checked(num_samples=check_count, tolerance=POSITIVE, num_tested=check_rows)
def net_bound(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    *,
    num_samples: int,
    tolerance: float,
    num_tested: int = 1024,
) -> NetBound:
    """Bound the probability that samples are an epsilon-net of the reachable velocities, by Lemma 1.

    If every step has one outcome (Assumption 6 of Halm & Posa, see `unique_steps`), the velocity after N
    steps is a piecewise linear function of the N m caps in [0, impulse_step], and independent uniform draws
    of them are an epsilon-net of its image with probability `dense_sampling`. The Lipschitz constant is
    computed from the contact modes: a = max |dv'/dv|_M and b = max |dv'/dcap|_M over modes whose region has
    an interior give L = b sqrt(sum_{k<N} a^(2k)), below the L^N of the paper's Theorem 9.

    The lemma does not apply if steps have several outcomes. At the settings of the ready models it needs
    an impossible number of samples. `coverage` makes statements from the samples themselves.

    Args:
        terms: planar contact terms, nc <= 5.
        v: (nv,) velocity before the impact.
        law: with one impulse_step for all contacts, inelastic, of uniform density.
        num_samples: independent samples.
        tolerance: epsilon, kg^(1/2) m/s.
        num_tested: number of steps for the test of Assumption 6.

    Returns:
        NetBound.

    Raises:
        ValueError, TypeError: as `unique_steps`; a tolerance that is not positive and finite; a law with a
            density, restitution or several impulse steps.

    Derivative: none; runs on the host.
    """
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance: expected a finite number > 0, got {tolerance}")
    inputs.check_count("num_samples", num_samples)
    fitted = fitted_law(terms, v, law)
    _check_uniform(fitted)
    steps, max_steps = np.unique(np.asarray(fitted.impulse_step, float)), fitted.max_steps
    if fitted.restitution is not None or steps.size > 1:
        raise ValueError(f"law: expected one impulse_step and no restitution, got {steps}, {law.restitution}")
    step = float(steps[0])
    tested = unique_steps(terms, v, law, num_samples=num_tested)
    dimensions = max_steps * int(np.sum(np.asarray(terms.active)))
    if tested.num_several:
        return NetBound(
            applies=False,
            probability=0.0,
            log10_needed=math.inf,
            lipschitz=math.nan,
            num_dimensions=dimensions,
            statement="Lemma 1 does not apply: Assumption 6 fails, at least "
            f"{100 * tested.share_low:.2g} % of the steps have several outcomes",
        )
    a, b = _step_lipschitz(terms)
    powers = np.exp(np.minimum(2.0 * np.arange(max_steps) * math.log(max(a, 1e-300)), 600.0))
    constant = b * math.sqrt(float(np.sum(powers)))
    chance = dense_sampling(constant, step, dimensions, num_samples, tolerance)
    log_cells = dimensions * math.log(max(1.0, math.ceil(step * constant * dimensions**0.5 / tolerance)))
    needed = (log_cells + math.log(log_cells + math.log(100.0))) / math.log(10.0)
    conclusion = f"probability at least {chance:.3g}" if chance > 0 else "nothing: the bound is vacuous"
    return NetBound(
        applies=True,
        probability=chance,
        log10_needed=needed,
        lipschitz=constant,
        num_dimensions=dimensions,
        statement=f"if no step has several outcomes (none of {tested.num_steps} had), Lemma 1 gives "
        f"{conclusion}; 0.99 needs about 10^{needed:.3g} samples",
    )


@checked(
    lipschitz=NOT_NEGATIVE,
    side=POSITIVE,
    num_dimensions=check_count,
    num_samples=check_count,
    tolerance=POSITIVE,
)
def dense_sampling(
    lipschitz: float, side: float, num_dimensions: int, num_samples: int, tolerance: float
) -> float:
    """Bound the probability that samples of a Lipschitz image are an epsilon-net of it, by Lemma 1.

    Lemma 1 of Halm & Posa: the probability is no less than 1 - (1 - Omega)^N / Omega with
    Omega = ceil(h L sqrt(n) / epsilon)^-n, for N independent uniform points of [0, h]^n. N points miss each
    of the 1 / Omega cells of diameter epsilon / L with probability (1 - Omega)^N.

    Args:
        lipschitz: L.
        side: h.
        num_dimensions: n.
        num_samples: N.
        tolerance: epsilon.

    Returns:
        The bound, or 0 if the bound is negative and so vacuous.

    >>> dense_sampling(1.0, 1.0, 1, 100, 0.1) > 0.999
    True
    >>> dense_sampling(1.0, 1.0, 20, 10**6, 0.1)
    0.0
    """
    cells = max(1.0, math.ceil(side * lipschitz * math.sqrt(num_dimensions) / tolerance))
    log_cells = num_dimensions * math.log(cells)
    if log_cells > 500.0:
        return 0.0
    if log_cells == 0.0:
        return 1.0
    log_missed = num_samples * math.log1p(-math.exp(-log_cells)) + log_cells
    return max(0.0, -math.expm1(log_missed)) if log_missed < 0.0 else 0.0


def _step_lipschitz(terms: ContactTerms) -> tuple[float, float]:
    """Find the largest |dv'/dv|_M and |dv'/dcap|_M over the contact modes whose regions have an interior."""
    from scipy.linalg import cholesky

    space, table = tabulate(terms)
    modes = np.flatnonzero(np.asarray(table.regular))
    margin, impulse = np.asarray(table.margin, float), np.asarray(table.impulse, float)
    response, jacobian = np.asarray(space.response, float), np.asarray(space.jacobian, float)
    rows = jacobian.shape[0]
    R = cholesky(np.asarray(terms.M, float), lower=False)
    push = R @ response
    scale = np.asarray(space.scale, float)[:: 1 + space.num_tangents]
    if len(modes) <= FEW_MODES:
        modes = np.array([k for k in modes if _is_regular(margin[..., k], jacobian)])
    per_v = [
        np.linalg.norm(np.eye(len(R)) + push @ impulse[:, :rows, k] @ jacobian @ np.linalg.inv(R), 2)
        for k in modes
    ]
    per_cap = [np.linalg.norm(push @ impulse[:, rows:, k] / scale[None, :], 2) for k in modes]
    return float(max(per_v)), float(max(per_cap))


def _is_regular(forms: np.ndarray, jacobian: np.ndarray) -> bool:
    """Tell whether some v and cap > 0 satisfy all inequalities `forms` (3m, L) strictly."""
    rows = jacobian.shape[0]
    nv, caps = jacobian.shape[1], forms.shape[1] - rows
    lift = np.block(
        [[jacobian, np.zeros((rows, caps))], [np.zeros((caps, nv)), np.eye(caps)]]
    )  # x = lift (v, cap)
    inequality = np.concatenate([forms @ lift, lift[rows:]])
    size = np.linalg.norm(inequality, axis=1)
    return has_interior(inequality[size > 1e-12] / size[size > 1e-12, None])

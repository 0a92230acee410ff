"""Approximation of the whole set of post-impact velocities (Halm & Posa, Algorithm 2): `approximate_set`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_count
from jaxcontact.batching.remote_blocks import run_blocks
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact.laws import routh
from jaxcontact.impact.laws.contact_space import contact_space, slowest_approach
from jaxcontact.impact.laws.routh_law import Routh, fitted_law
from jaxcontact.impact.laws.routh_steps import ImpactDraws, StepSettings
from jaxcontact.impact.sampling.driver import sample
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

CLOSED_TOGETHER = 256  # velocities of a block that take the closing step


class PostImpactSet(Record):
    """Velocities after the impact that approximate the reachable set; axis 0 is the sample.

    Attributes:
        v_plus: (n, nv).
        valid: (n,) bool, False if a contact still approaches after the closing step, or a status bit other
            than UNTERMINATED is set.
        status: (n,) uint32 bits of the samples before the closing step.
        tolerance: epsilon of the approximation, in the units of v.
        closing_impulse: cap on the normal impulses of the closing step, epsilon / (3 psi), N s.
        complete: whether all solutions of every step were candidates.
    """

    v_plus: jax.Array
    valid: jax.Array
    status: jax.Array
    tolerance: float = static()
    closing_impulse: float = static()
    complete: bool = static(default=False)


@checked(num_samples=check_count, tolerance=POSITIVE)
def approximate_set(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    *,
    num_samples: int,
    tolerance: float,
    seed: int = 0,
    run: Run = DEFAULT_RUN,
) -> PostImpactSet:
    """Find velocities that approximate the post-impact set within a tolerance (Halm & Posa, Algorithm 2).

    The algorithm draws samples of at most max_steps steps. If a contact still approaches, one small
    closing step follows, with normal impulses up to epsilon / (3 psi), psi = sigma_max(M^-1 J^T) m (1 + max
    mu) + 1. A sample is valid if no contact approaches after it. Theorem 9: for every epsilon and delta some
    number of samples and steps gives an epsilon-net with probability 1 - delta. The theorem does not tell
    these numbers, and it needs Assumption 6 (one solution per step), which the compass gait and RAMone
    violate.

    Args:
        tolerance: epsilon > 0, in the units of v; below `impulse_step` in Algorithm 2.
        terms, v, law, num_samples, seed, run: as in `sample`; the law is inelastic.

    Returns:
        PostImpactSet of num_samples candidates.

    Raises:
        ValueError, TypeError: as `sample`; tolerance not a finite number > 0; a law with restitution.

    Status: as `sample`, before the closing step.

    Derivative: none; a host-level driver.
    """
    if not (isinstance(tolerance, int | float) and np.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance: expected a finite number > 0, got {tolerance!r}")
    fitted = fitted_law(terms, v, law)
    if fitted.restitution is not None:
        raise ValueError(
            f"law.restitution: expected None, for the set is of inelastic impacts, got {law.restitution}"
        )
    samples = sample(terms, v, law, num_samples=num_samples, seed=seed, run=run)
    nc, _, nv = terms.J_t.shape
    jacobian = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)
    jacobian = np.where(np.asarray(terms.active)[:, None, None], jacobian, 0.0).reshape(-1, nv)
    size = float(np.linalg.norm(np.linalg.solve(np.asarray(terms.M), jacobian.T), 2))
    psi = size * nc * (1.0 + float(np.max(terms.mu))) + 1.0
    closing = float(tolerance) / (3.0 * psi)

    space = contact_space(terms)
    slowest = np.asarray(slowest_approach(space, v) / space.scale[:: 1 + space.num_tangents])
    active = np.asarray(terms.active)
    v_plus = np.array(samples.v_plus)

    def approaching(velocities: np.ndarray) -> np.ndarray:
        return np.any(active & (velocities @ np.asarray(terms.J_n).T < -slowest), axis=1)

    unfinished = np.flatnonzero(approaching(v_plus))
    begins = range(0, unfinished.size, CLOSED_TOGETHER)
    rows = [unfinished[begin : begin + CLOSED_TOGETHER] for begin in begins]
    settings = StepSettings("lemke" if fitted.selection == "lemke" else "all", fitted.num_directions)
    closed = run_blocks(
        run, _ClosingStep, (terms, closing, settings), ((v_plus[part],) for part in rows), count=len(rows),
        num_threads=1,
    )  # fmt: skip
    for part, velocities in zip(rows, closed, strict=True):
        v_plus[part] = velocities
    failed = np.asarray(samples.status) & ~np.uint32(int(Status.UNTERMINATED)) != 0
    return PostImpactSet(
        v_plus=jnp.asarray(v_plus),
        valid=jnp.asarray(~approaching(v_plus) & ~failed),
        status=samples.status,
        tolerance=float(tolerance),
        closing_impulse=closing,
        complete=samples.complete,
    )


class _ClosingStep:
    """Function of velocities (n, nv): those after one more step with small normal impulses."""

    def __init__(self, terms: ContactTerms, closing: float, settings: StepSettings) -> None:
        self.terms, self.closing, self.settings = terms, closing, settings

    def __call__(self, v: np.ndarray) -> np.ndarray:
        """Take the step of each velocity, padded so that one program serves any number of them."""
        padded = v[np.resize(np.arange(len(v)), CLOSED_TOGETHER)]
        steps = CLOSED_TOGETHER, 1
        impulse_max = jnp.full((*steps, self.terms.phi.shape[0]), self.closing, v.dtype)
        draws = ImpactDraws(impulse_max, jnp.zeros(steps, v.dtype))
        closed, _, _ = routh.resolve_many(self.terms, jnp.asarray(padded), draws, self.settings, False)
        return np.asarray(closed)[: len(v)]

"""Other densities of the largest impulses of a step: draws from the unit cube, reshaped.

Owns the place of a user's density between the random numbers and the sampling kernel, which sees draws only;
entry `shaped`.
"""

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.impact.laws.routh_steps import Density
from jaxcontact.impact.sampling.draws import Iid, Sobol

_LOOKS = 1024  # points of the unit cube at which a density is checked


class Shaped(Record):
    """Draws whose coordinates come in steps of nc fractions, reshaped by a density, and one pick.

    Attributes:
        draws: the uniform numbers.
        density: (nc,) uniform numbers to (nc,) fractions in [0, 1].
        num_contacts: nc.
    """

    draws: Sobol | Iid
    density: Density = static()
    num_contacts: int = static()

    @property
    def independent(self) -> bool:
        """Whether the samples are independent."""
        return self.draws.independent

    def epoch(self, number: int) -> Shaped:
        """Return the draws of epoch `number`, reshaped by the same density."""
        return self.replace(draws=self.draws.epoch(number))

    @property
    def fingerprint(self) -> str:
        """A hash of the density's values, by which a checkpoint identifies it."""
        values = np.asarray(_looked_at(self.density, self.num_contacts))
        return hashlib.sha256(values.tobytes()).hexdigest()[:16]

    def uniform(
        self, index: jax.Array, start: int | jax.Array, count: int, dtype: jax.typing.DTypeLike = float
    ) -> jax.Array:
        """Compute coordinates as the draws do, for whole steps: start and count are multiples of nc + 1."""
        drawn = self.draws.uniform(index, start, count, dtype)
        rows = self.num_contacts
        steps = drawn.reshape(-1, rows + 1, drawn[0].size)
        per_lane = jax.vmap(jax.vmap(self.density, in_axes=1, out_axes=1))
        fractions = jnp.clip(per_lane(steps[:, :rows]), 0.0, 1.0).astype(drawn.dtype)
        return jnp.concatenate([fractions, steps[:, rows:]], axis=1).reshape(drawn.shape)


def shaped(draws: Sobol | Iid, density: Density | None, num_contacts: int) -> Sobol | Iid | Shaped:
    """Reshape draws by a density, after a check of it on 1024 points; return them unchanged if it is None.

    Raises:
        TypeError, ValueError: not callable, not hashable, a wrong shape, fractions outside of [0, 1] or NaN.
    """
    if density is None:
        return draws
    if not callable(density):
        raise TypeError(f"density: expected a function of (nc,) uniform numbers, got {density!r}")
    hash(density)
    shape_values = np.asarray(_looked_at(density, num_contacts))
    if shape_values.shape != (_LOOKS, num_contacts):
        raise ValueError(f"density: expected shape ({num_contacts},) back, got {shape_values.shape[1:]}")
    if not np.all((shape_values >= 0) & (shape_values <= 1)):
        raise ValueError("density: expected fractions in [0, 1], got others or NaN")
    return Shaped(draws=draws, density=density, num_contacts=num_contacts)


def _looked_at(density: Density, num_contacts: int) -> jax.Array:
    """Compute the values (_LOOKS, nc) of a density at points near corners and at inner points of the cube."""
    inner = np.random.default_rng(0).uniform(size=(_LOOKS, num_contacts))
    inner[: _LOOKS // 4] = np.where(inner[: _LOOKS // 4] < 0.5, 1e-7, 1 - 1e-7)
    with jax.ensure_compile_time_eval():
        return jax.vmap(density)(jnp.asarray(inner))

"""The break of two billiard balls by a third, which hits both at once (Seghete & Murphey, Fig. 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_number
from jaxcontact.front_door import checked
from jaxcontact.geometry import Disc
from jaxcontact.mechanics.system import Model, Params, State, Structure, System


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    places = q.reshape(3, 2)
    return places, jnp.zeros_like(places[:, 0])


BILLIARD_BREAK = System(
    Structure(
        dim=2,
        bodies=("a", "b", "c"),
        num_positions=6,
        shapes=tuple(Disc(name=f"{name}_rim", body=name, radius=f"radius_{name}") for name in "abc"),
        pairs=(("a_rim", "c_rim"), ("b_rim", "c_rim")),
    ),
    _poses,
)


@checked()
def billiard_break(
    theta: float, masses: Sequence[float] | None = None, radii: Sequence[float] | None = None
) -> Model:
    """Make three billiard balls: the cue ball c hits balls a and b, at rest, at once at 1 m/s.

    From c, a and b are seen under the angle theta. q = (x, y) of a, b and c; contacts a-c and b-c,
    frictionless, no rotation. c moves along the bisector.

    Args:
        theta: angle a-c-b, rad, up to pi, and so large that a and b do not overlap (equal balls: 60 degrees).
        masses: of a, b, c, kg; default 0.17 each.
        radii: of a, b, c, m; default 0.0286 each.

    Raises:
        ValueError: overlapping balls, numbers that are not positive.
    """
    check_number("theta", theta)
    m = (0.17,) * 3 if masses is None else tuple(map(float, masses))
    r = (0.0286,) * 3 if radii is None else tuple(map(float, radii))
    for name, three in (("masses", m), ("radii", r)):
        if len(three) != 3 or not all(x > 0 for x in three):
            raise ValueError(f"{name}: expected three numbers > 0, of a, b and c, got {three}")
    reach = (r[0] + r[2], r[1] + r[2])
    apart = math.sqrt(reach[0] ** 2 + reach[1] ** 2 - 2.0 * reach[0] * reach[1] * math.cos(theta))
    if not 0 < theta <= math.pi or apart < (r[0] + r[1]) * (1.0 - 1e-9):
        raise ValueError(
            f"theta: expected an angle up to pi at which a and b do not overlap, got {theta} rad"
        )
    half = 0.5 * theta
    q = [reach[0] * math.cos(half), reach[0] * math.sin(half)]
    q += [reach[1] * math.cos(half), -reach[1] * math.sin(half), 0.0, 0.0]
    return Model(
        system=BILLIARD_BREAK,
        params=Params(
            mass=jnp.asarray(m, float),
            inertia=jnp.ones(3),
            mu=jnp.array(0.0),
            gravity=jnp.zeros(2),
            constants={f"radius_{name}": jnp.array(x) for name, x in zip("abc", r, strict=True)},
        ),
        initial=State(q=jnp.array(q), v=jnp.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]), t=jnp.array(0.0)),
    )

"""Zeta, eta and delta of certified bodies against random motions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.stability_bodies import fig2, fig3

from jaxcontact.stability import certify, excursion_bounds, motion_path
from jaxcontact.stability.body import as_terms
from jaxcontact.stability.falsify import make_starts
from jaxcontact.stability.motion import zero_order_dynamics

LEVEL = fig2(0.5, 0.8).replace(alpha=0.0, L1=-0.5, L2=0.6)
BODIES = {
    "inelastic": fig2(0.5, 0.8),
    "near the boundary": fig2(0.9, 0.2),
    "elastic": fig3(0.8, 0.6),
    "unequal feet": fig3(0.8, 0.6, e=0.4).replace(phi1=0.05, e2=0.0),
    "level": LEVEL,
    "level, elastic": LEVEL.replace(e1=0.3, e2=0.3),
}


@functools.partial(jax.jit, static_argnums=(2, 3))
def motions(terms, size, count, events):
    """States x (count, events, 2 nv) of random motions from |x| = size, times, and x along each piece."""
    first = make_starts(zero_order_dynamics(terms), count, jax.random.key(0))
    q, v = first.gaps @ jnp.linalg.pinv(terms.J_n).T, first.v
    a, b = jnp.sum(q**2, axis=1), jnp.sum(v**2, axis=1)
    scale = jnp.sqrt(2 * size**2 / (b + jnp.sqrt(b**2 + 4 * a * size**2)))  # of v; of q its square
    first = first.replace(log_size=jnp.log(scale))
    path, note = jax.vmap(lambda one: motion_path(terms, one, num_events=events))(first)
    scale, going = jnp.exp(path.log_size), path.outcome == 0
    time = jnp.where(going, note["duration"] * scale, 0.0)
    v, pull = path.v * scale[..., None], note["acceleration"]

    def placed(part):
        return v * part[..., None] + 0.5 * pull * part[..., None] ** 2

    moved = jnp.where(going[..., None], placed(time), 0.0)
    q = (q * scale[:, :1] ** 2)[:, None] + jnp.cumsum(moved, axis=1) - moved
    along = [
        jnp.concatenate([q + placed(part), v + pull * part[..., None]], axis=-1)
        for part in (0.0 * time, 0.3 * time, 0.6 * time, time)
    ]
    return jnp.concatenate([q, v], axis=-1), time, jnp.stack(along), going & (note["contact"] < 0)


def held(name, count, events):
    """Lemmas 1 and 2 on every piece of motion, and delta for the whole of it."""
    bounds, used = excursion_bounds(certify(BODIES[name])), []
    for epsilon in (0.5, 1e-3):
        delta = bounds.delta(epsilon)
        assert 0 < delta < epsilon
        terms = jax.tree.map(jnp.asarray, as_terms(BODIES[name]))
        x, time, along, moves = map(np.asarray, motions(terms, delta, count, events))
        assert np.linalg.norm(x[:, 0], axis=1) == pytest.approx(delta)
        size, largest = np.linalg.norm(x, axis=-1), np.linalg.norm(along, axis=-1).max(axis=0)
        for piece in np.argwhere(moves & (time > 0))[: 2000 if count > 1000 else 200]:
            i = tuple(piece)
            assert time[i] <= bounds.zeta(size[i]) * (1 + 1e-9)
            assert largest[i] <= size[i] + bounds.eta(time[i]) * (1 + 1e-9)
        used.append(largest.max() / epsilon)
    assert max(used) < 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["inelastic", "unequal feet", "level, elastic"])
def test_pushes_below_delta_stay_within_epsilon(name):
    held(name, 256, 48)


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_ten_thousand_motions_stay_within_epsilon(name):
    held(name, 10_000, 100)


def test_delta_goes_with_the_square_of_epsilon():
    """A fall from the height delta ends with a speed ~ sqrt(delta): no power below two is possible."""
    bounds = excursion_bounds(certify(BODIES["inelastic"]))
    assert bounds.delta(1e-4) / bounds.delta(1e-5) == pytest.approx(100.0, rel=0.01)
    assert bounds.delta(5.0) == bounds.delta(1.0)


def test_free_fall_takes_the_time_of_lemma_1():
    """From rest at the gap h both contacts of the level body fall for sqrt(2 h)."""
    bounds = excursion_bounds(certify(LEVEL))
    gradient, pull = bounds.falling
    assert pull == pytest.approx(1.0)
    assert bounds.zeta(1e-6) >= np.sqrt(2e-6)
    assert gradient == pytest.approx(np.sqrt(1 + 0.5**2))  # the nearer foot


def test_what_has_no_bound_is_refused():
    with pytest.raises(ValueError, match="certificate: expected a proof of 'stable', got 'unstable'"):
        excursion_bounds(certify(fig2(0.3, 0.2)))
    proof = certify(fig2(0.5, 0.8))
    with pytest.raises(ValueError, match="expected a proof of 'stable'"):
        excursion_bounds(proof.replace(body=as_terms(fig2(0.5, 0.3))))
    bounds = excursion_bounds(proof)
    for call, name in ((bounds.zeta, "size"), (bounds.eta, "time"), (bounds.delta, "epsilon")):
        with pytest.raises(ValueError, match=f"{name}: expected a finite number > 0"):
            call(0.0)

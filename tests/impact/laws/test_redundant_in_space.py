"""Steps of redundant contacts in space, whose solutions are in no basis of the complementarity problem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lcp_bases, mode_programs
from scipy.optimize import nnls

import jaxcontact as jc
from jaxcontact.impact import sample


def box(number=4):
    """The box on its first corners."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    return _some(terms, slice(0, number)), model.initial_state().v


def _some(terms, index):
    return terms.replace(**{n: getattr(terms, n)[index] for n in ("J_n", "J_t", "phi", "mu", "active")})


def in_line():
    """Two corners of an edge and the point between them: normals of rank two."""
    terms, v = box(3)
    middle = {n: getattr(terms, n).at[2].set(getattr(terms, n)[:2].mean(axis=0)) for n in ("J_n", "J_t")}
    return terms.replace(**middle), v


def numbers(terms):
    return tuple(np.asarray(a) for a in (terms.M, terms.J_n, terms.J_t, terms.mu))


def can_stop(terms, v, contacts):
    """Whether these corners together can take all momentum."""
    M, J_n, J_t, mu = numbers(terms)
    fan = lcp_bases.polygon(4)
    rays = np.concatenate([(J_n[c][None] + mu[c] * fan @ J_t[c]) for c in contacts])
    return nnls(rays.T, -M @ v)[1] < 1e-10


def needs_all_four(terms, rng):
    """A landing that four corners can stop, and no three of them."""
    while True:
        v = rng.normal(size=6) * np.array([0.2, 0.2, 0.1, 0.3, 0.3, 0.3]) - np.array([0, 0, 0.6, 0, 0, 0])
        three = [tuple(set(range(4)) - {left}) for left in range(4)]
        if can_stop(terms, v, range(4)) and not any(can_stop(terms, v, each) for each in three):
            return jnp.asarray(v)


@pytest.mark.slow
def test_an_outcome_that_needs_all_corners_of_a_box_is_found(rng):
    terms, _ = box()
    v = needs_all_four(terms, rng)
    (outcomes, valid), info = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra(num_directions=4))
    found = np.asarray(outcomes)[np.asarray(valid)]
    assert np.abs(found).max(axis=1).min() < 1e-9 and float(info.residual) < 1e-9


def of_programs(terms, v, cap, direction):
    return mode_programs.farthest(
        *numbers(terms), np.asarray(v), None if cap is None else np.asarray(cap), 4, direction
    )


def compare(terms, v, cap, direction):
    """Corners of the sets of solutions that linear programs find are among those found; how many there are."""
    if cap is None:
        outcomes, valid = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra(num_directions=4))[0]
    else:
        outcomes, valid = jc.impact.outcomes(
            terms, v, jc.impact.RouthStep(impulse_max=cap, num_directions=4)
        )[0]
    found = np.asarray(outcomes)[np.asarray(valid)]
    wanted = of_programs(terms, v, cap, direction)
    assert len(wanted)
    for each in wanted:
        assert np.abs(found - each).max(axis=1).min() < 1e-7
    return len(found)


@pytest.mark.slow
@pytest.mark.parametrize("capped", [False, True])
def test_corners_of_many_sets_of_solutions_are_found(rng, capped):
    terms, v = in_line()
    for _ in range(2 if capped else 6):
        cap = jnp.asarray(rng.uniform(0.0, 0.4, 3)) if capped else None
        compare(terms, v + jnp.asarray(0.5 * rng.normal(size=6)), cap, rng.normal(size=6))


@pytest.mark.slow
def test_corners_of_the_solutions_of_a_box_are_found(rng):
    """One landing that only four corners stop, and one flat that turns about the vertical."""
    terms, _ = box()
    for v in (needs_all_four(terms, rng), jnp.array([0.1, 0.05, -0.4, 0.0, 0.0, 1.0])):
        compare(terms, v, None, rng.normal(size=6))


@pytest.mark.slow
def test_redundant_corners_are_complete_where_their_ends_are_tabulated():
    terms, v = in_line()
    found = sample(terms, v, jc.impact.Routh(impulse_step=0.2, max_steps=8, num_directions=4), num_samples=4)
    assert found.complete
    same = _some(terms, jnp.array([0, 0, 0]))  # three times one corner: more freedom than one
    assert not sample(
        same, v, jc.impact.Routh(impulse_step=0.2, max_steps=8, num_directions=4), num_samples=4
    ).complete


@pytest.mark.slow
def test_a_step_inside_jit_says_whether_its_solutions_are_complete():
    """Three times one corner has solutions that are not tabulated; three corners have not."""
    terms, v = in_line()
    same = _some(terms, jnp.array([0, 0, 0]))
    run = jax.jit(
        lambda terms, key: (
            jc.impact.sample_in_jit(
                terms, v, jc.impact.Routh(impulse_step=0.2, max_steps=8, num_directions=4), key, num_samples=4
            )[1].complete
        )
    )
    assert np.all(run(terms, jax.random.key(0))) and not np.any(run(same, jax.random.key(0)))


@pytest.mark.long
def test_the_derivative_of_a_landing_on_a_face_is_that_of_the_solution(rng):
    """Friction depends on the corners' shares of the load: a corner without any stays without."""
    model = jc.models.tossed_cube()

    def flat(yaw):
        q = jnp.zeros(7).at[jnp.array([2, 3, 6])].set(jnp.stack([0.05, jnp.cos(yaw / 2), jnp.sin(yaw / 2)]))
        return _some(jc.contact_terms(model, model.initial_state().replace(q=q)), slice(0, 4))

    def law(yaw, v):
        return jc.impact.anitescu_potra(flat(yaw), v, num_directions=8)[0]

    corners = np.asarray(flat(0.0).J_n)
    on_edge = np.eye(6) - np.linalg.pinv(corners[[1, 3]]) @ corners[[1, 3]]
    v, change = (rng.normal(size=(2, 32, 6)) * np.array([1, 1, 1, 1, 1, 8])) @ on_edge
    v *= -np.sign(v @ corners[0])[:, None]
    yaw, h = jnp.asarray(rng.uniform(0.0, 6.0, 32)), 1e-6
    own = jax.vmap(lambda yaw, v, by: jax.jvp(lambda v: law(yaw, v), (v,), (by,))[1])(yaw, v, change)
    above, here, below = (jax.vmap(law)(yaw, v + way * h * change) for way in (1, 0, -1))
    smooth = np.abs(above - 2.0 * here + below).max(axis=1) < 1e-4 * h
    assert np.mean(smooth) > 0.8
    np.testing.assert_allclose(own[smooth], ((above - below) / (2.0 * h))[smooth], rtol=0, atol=1e-7)

"""Redundant contacts have thousands of modes with one outcome: none of the others is lost among them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.sampling import mode_selection, visited_modes
from jaxcontact.impact.sampling.by_modes import regular_modes, tabulate
from jaxcontact.solvers import contact_modes, mode_filter

LANES, PICKS = 32, 16


def three_in_line():
    """Two corners of the box and the point between them, three of whose impulses are redundant."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    rows = {name: getattr(terms, name)[:3] for name in ("J_n", "J_t", "phi", "mu", "active")}
    for name in ("J_n", "J_t"):
        rows[name] = rows[name].at[2].set(rows[name][:2].mean(axis=0))
    return terms.replace(**rows), model.initial_state().v


def four_corners():
    model = jc.models.box_drop_3d()
    return jc.contact_terms(model, model.initial_state()), model.initial_state().v


def steps(space, v, rng):
    """x (4m, LANES) of first steps, from one velocity by different largest impulses, and of random ones."""
    u, m = np.asarray(space.jacobian @ v), len(space.mu)
    spread = np.asarray(space.jacobian) @ (0.3 * rng.normal(size=(len(v), LANES)))
    spread[:, : LANES // 2] = 0.0
    cap = np.asarray(mode_selection.scale_largest(space, jnp.full(m, 0.4)))
    return np.concatenate([u[:, None] + spread, rng.uniform(size=(m, LANES)) * cap[:, None]])


def distinct(velocities):
    """Those of (k, r) that are apart."""
    kept = []
    for each in velocities:
        if all(np.abs(each - other).max() > 1e-7 for other in kept):
            kept.append(each)
    return kept


@pytest.mark.slow
@pytest.mark.parametrize(
    "landing,number", [(three_in_line, mode_selection.SIEVED // 8), (four_corners, mode_selection.SIEVED)]
)
def test_every_outcome_is_picked_and_told_whatever_the_number_of_modes(landing, number, rng):
    """More modes are valid in a tile of lanes than a sieve is expected to leave, up to a hundred in one lane."""
    terms, v = landing()
    terms = terms.replace(mu=jnp.full_like(terms.mu, 1.5))  # so strong that steps have several outcomes
    space, table = tabulate(terms, 4)
    table = regular_modes(table)
    x = steps(space, v, rng)
    speed = float(jnp.sqrt(v @ space.mass @ v))
    limit = contact_modes.feasibility_tolerance(v.dtype) * speed
    margin, regular = np.asarray(table.margin), np.asarray(table.regular)
    worst = np.min([form.T @ x for form in margin], axis=0)
    valid = (worst >= -limit) & regular[:, None]
    assert np.count_nonzero(valid.any(axis=1)) > number

    cap = np.asarray(mode_selection.scale_largest(space, jnp.full(len(space.mu), 0.4)))
    memory = visited_modes.Memory(table, space.delassus, x[: len(space.scale), 0], cap, limit)
    sieve = jax.tree.map(jnp.asarray, memory.sieve_of_all())
    assert isinstance(sieve, mode_filter.Sieve)

    @jax.jit
    def select(pick):
        return mode_selection.select(
            table, sieve, jnp.asarray(x), jnp.full(LANES, pick), jnp.ones(LANES, bool), speed,
            jnp.asarray(memory.names),
        )  # fmt: skip

    chosen = [select((k + 0.5) / PICKS) for k in range(PICKS)]
    told = np.asarray(chosen[0][3])
    several = 0
    for lane in range(LANES):

        def outgoing(modes, lane=lane):
            impulse = np.einsum("rlk,l->kr", np.asarray(table.impulse)[..., modes], x[:, lane])
            return x[: len(space.scale), lane] + impulse @ np.asarray(space.delassus)

        wanted = distinct(outgoing(np.flatnonzero(valid[:, lane])))
        assert 1 <= len(wanted) <= PICKS
        picked = distinct(outgoing(np.array([int(one[0][lane]) for one in chosen])))
        assert len(picked) == len(wanted)
        for each in wanted:
            assert min(np.abs(each - other).max() for other in picked) < 1e-7
        of_told = outgoing(np.flatnonzero(told & valid[:, lane]))
        for each in wanted:
            assert np.abs(of_told - each).max(axis=1).min() < 1e-7
        several += len(wanted) > 1
    assert several or landing is four_corners  # the flat box has one outcome in each lane

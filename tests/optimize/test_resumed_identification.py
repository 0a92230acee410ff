"""Searches for parameters that are killed at every step resume to the same bits, and refuse files of others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

NUMBERS = jnp.linspace(-1.0, 2.0, 30)
STARTS = {"a": jnp.array([0.9, -0.5]), "b": jnp.array([3.0, -2.0])}
TIMES = jnp.linspace(0.0, 1.0, 21)


def valleys(p, d):
    """Two minima in a, the second one better; a kink in b."""
    return (
        (p["a"] ** 2 - 1.0) ** 2
        + 0.5 * p["a"]
        + 10 * (p["b"] - p["a"] ** 2 + 0.1 * d) ** 2
        + abs(p["b"] - 1.0)
    )


def swing(params, own, data):
    return (own * jnp.sin(params["rate"] * TIMES)[None] - data) / 1e-2


def by_score(run=jc.Run(), data=NUMBERS):
    search = jc.optimize.SearchSettings(starts=STARTS)
    params, info = jc.optimize.identify(valleys, {"a": 1.2, "b": 0.0}, data, search=search, run=run)
    return params, info


def by_motions(run=jc.Run(), data=None):
    noise = 1e-2 * np.random.default_rng(0).normal(size=(4, 21))
    data = jnp.asarray(np.sin(7.0 * np.asarray(TIMES)) + noise) if data is None else data
    search = jc.optimize.SearchSettings(starts={"rate": jnp.array([2.0, 6.0, 25.0])})
    params, own, info = jc.optimize.identify_motions(
        swing, {"rate": 17.0}, jnp.ones((4, 1)), data, search=search, run=run
    )
    return (params, own), info


@pytest.mark.long
@pytest.mark.parametrize("search", [by_score, by_motions])
def test_a_search_killed_again_and_again_resumes_to_the_same_bits(tmp_path, search):
    path, reports = tmp_path / "run.npz", []

    def kill(step, max_steps, at):
        reports.append(step)
        assert np.isfinite(at.cost) and at.slope >= 0.0 and at.residual is None and at.phase[:6] == "start "
        if len(reports) % 3:
            raise KeyboardInterrupt

    expected, kills = search(), 0
    while True:
        try:
            found = search(jc.Run(checkpoint=path, progress=kill))
            break
        except KeyboardInterrupt:
            kills += 1
    assert kills > 10 and reports.count(1) == len(found[1].ends)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    again = search(jc.Run(checkpoint=path))
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("search, data", [(by_score, NUMBERS + 1e-9), (by_motions, jnp.ones((4, 21)))])
def test_a_checkpoint_of_other_data_is_refused_by_name(tmp_path, search, data):
    run = jc.Run(checkpoint=tmp_path / "run.npz")
    search(run)
    with pytest.raises(ValueError, match="of another run and was left as it is; these differ: data$"):
        search(run, data)
    with pytest.raises(ValueError, match="run.chunk: expected None"):
        search(jc.Run(chunk=3))

"""The branches of devices other than a CPU, taken on a CPU, give what the CPU's branches give."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.traceable import CASES

from jaxcontact.batching import compacting_loop, platforms
from jaxcontact.impact.sampling import by_modes, sample_in_jit
from jaxcontact.solvers import cone_newton, scaling

WORLDS = 7
SMALL = {  # tiles of a CPU so small that a few worlds fill several
    (compacting_loop, "_TILE"): 3,
    (compacting_loop, "_LEFT"): 1,
    (compacting_loop, "_FEW"): 1,
    (scaling, "_TILE"): 3,
    (cone_newton, "LEAST_TILE"): 3,
    (cone_newton, "LARGEST_TILE"): 3,
    (sample_in_jit, "tile_size"): lambda modes, platform: 8 if platforms.is_cpu(platform) else 64,
}
# What has loops of a length that depends on the data, and no early_exit=False: these have two branches.
BRANCHED = {
    "anitescu_potra",
    "anitescu_potra in space",
    "compliant.rollout",
    "compliant.rollout of a robot",
    "compliant.step",
    "plastic",
    "resolve in space",
    "sample_in_jit",
    "sample_in_jit in space",
    "sample_in_jit with restitution",
    "sample_in_jit, its derivative",
    "sequential",
    "simulate.rollout",
    "solve_lcp",
}


def batched(name):
    """A case and arguments of several worlds, whose numbers differ by up to one part in a hundred."""
    function, arguments = CASES[name]
    spread = 1.0 + 0.01 * np.random.default_rng(5).uniform(size=WORLDS)

    def worlds(x):
        x = jnp.asarray(x)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.stack([x] * WORLDS)
        return x[None] * spread.reshape(-1, *(1,) * x.ndim)

    return jax.vmap(function), jax.tree.map(worlds, arguments)


def has_branches(function, arguments):
    return "platform_index" in str(jax.make_jaxpr(function)(*arguments))


@pytest.fixture(scope="module")
def both():
    """Results of all cases with branches, on a CPU and as elsewhere; names of the cases with branches."""
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in SMALL.items():
            patch.setattr(module, name, value)
        jax.clear_caches()
        cases = {name: batched(name) for name in CASES}
        cases = {name: case for name, case in cases.items() if has_branches(*case)}
        found = []
        for layout in (contextlib.nullcontext(), platforms.as_elsewhere()):
            with layout:
                found.append({name: jax.jit(f)(*given) for name, (f, given) in cases.items()})
        with platforms.as_elsewhere():
            left = {name for name, case in cases.items() if has_branches(*case)}
    jax.clear_caches()
    return found, left


def test_which_functions_have_branches(both):
    (here, _), left = both
    assert set(here) == BRANCHED
    assert not left  # all are taken away by the switch


@pytest.mark.parametrize("name", sorted(BRANCHED))
def test_both_branches_agree(both, name):
    (here, elsewhere), _ = both
    for a, b in zip(jax.tree.leaves(here[name]), jax.tree.leaves(elsewhere[name]), strict=True):
        assert a.dtype == b.dtype
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9 * (1.0 + np.max(np.abs(a), initial=0.0)))
        else:
            np.testing.assert_array_equal(b, a)


def test_the_switch_reaches_the_host():
    assert by_modes.tile_size(49, "cpu") < by_modes.tile_size(49, "cuda")
    with platforms.as_elsewhere():
        assert by_modes.tile_size(49, "cpu") == by_modes.tile_size(49, "cuda")
    assert platforms.is_cpu("cpu")

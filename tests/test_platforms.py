"""The branches of devices other than a CPU, taken on a CPU, give what the CPU's branches give."""

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
    (compacting_loop, "_FINISH"): 2,
    (compacting_loop, "_FEW"): 2,
    (scaling, "_TILE"): 3,
    (cone_newton, "TILE"): 3,
    (sample_in_jit, "tile_size"): lambda modes, platform: 8 if platforms.is_cpu(platform) else 64,
}
# Cases whose program has a branch by platform of this package; JAX has some of its own.
BRANCHED = {
    "anitescu_potra",
    "anitescu_potra in space",
    "compliant.rollout",
    "compliant.rollout of a robot",
    "compliant.step",
    "compliant.step of the nearest contacts",
    "linearize",
    "plastic",
    "project",
    "resolve in space",
    "resolve in space of static length",
    "sample_in_jit",
    "sample_in_jit in space",
    "sample_in_jit with restitution",
    "sample_in_jit, its derivative",
    "sequential",
    "simulate.rollout",
    "simulate.rollout of time steps",
    "solve_lcp",
    "solve_lcp of static length",
}
QUICK = ("compliant.step", "sample_in_jit", "solve_lcp")


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


def num_branches(function, arguments):
    """Branches by platform in its program, some of them JAX's own."""
    return str(jax.make_jaxpr(function)(*arguments)).count("platform_index")


@pytest.fixture(scope="module")
def small_tiles():
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in SMALL.items():
            patch.setattr(module, name, value)
        jax.clear_caches()
        yield
    jax.clear_caches()


@pytest.mark.slow
def test_which_functions_have_branches(small_tiles):
    cases = {name: batched(name) for name in CASES}
    counts = {name: num_branches(*case) for name, case in cases.items()}
    with platforms.as_elsewhere():
        assert {name for name, case in cases.items() if num_branches(*case) < counts[name]} == BRANCHED


@pytest.mark.slow_cases("names0")
@pytest.mark.parametrize("names", [QUICK, pytest.param(tuple(BRANCHED - {*QUICK}), marks=pytest.mark.slow)])
def test_both_branches_agree(small_tiles, names):
    cases = {name: batched(name) for name in sorted(names)}
    assert all(num_branches(*case) for case in cases.values())
    here = {name: jax.jit(function)(*given) for name, (function, given) in cases.items()}
    with platforms.as_elsewhere():
        elsewhere = {name: jax.jit(function)(*given) for name, (function, given) in cases.items()}
    for name in cases:
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(here[name])]
        leaves = zip(paths, jax.tree.leaves(here[name]), jax.tree.leaves(elsewhere[name]), strict=True)
        for path, a, b in leaves:
            assert a.dtype == b.dtype
            a, b = np.asarray(a), np.asarray(b)
            if path.endswith((".residual", ".dissipation")):  # what the tolerance of a solver leaves of them
                np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7, err_msg=name + path)
            elif a.dtype.kind == "f":
                size = 1.0 + np.max(np.abs(a), initial=0.0)
                np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9 * size, err_msg=name + path)
            else:
                np.testing.assert_array_equal(b, a, err_msg=name + path)


@pytest.mark.long
def test_the_switch_reaches_the_host():
    assert by_modes.tile_size(49, "cpu") < by_modes.tile_size(49, "cuda")
    with platforms.as_elsewhere():
        assert by_modes.tile_size(49, "cpu") == by_modes.tile_size(49, "cuda")
    assert platforms.is_cpu("cpu")

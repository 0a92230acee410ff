"""Numbers that are none: what a result with a status says SUCCESS of is finite, whatever went in."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from inputs.bad_calls import HOST, public_functions
from inputs.valid_calls import CALLS, VALUES, arguments

FUNCTIONS = public_functions()
# Functions for the inside of a program whose result has an info with a status.
PATHS = [
    "project", "place_on_ground", "linearize", "solve_friction", "solve_lcp", "compliant.rollout",
    "compliant.step", "compliant.solve", "ess.flow", "ess.b_derivative", "ess.integrate", "impact.anitescu_potra",
    "impact.chain", "impact.newton", "impact.poisson", "impact.outcomes", "impact.paradox", "impact.plastic",
    "impact.propagate", "impact.resolve", "impact.routh_path", "impact.routh_step", "impact.sample_in_jit",
    "impact.sequential", "simulate.rollout", "simulate.variational", "simulate.time_augmented",
]  # fmt: skip
POISON = (np.nan, np.inf, -np.inf, 1e300, -1e300)


def status_of(result):
    holders = jax.tree.leaves(result, is_leaf=lambda x: hasattr(x, "status"))
    bits = [jnp.bitwise_or.reduce(jnp.ravel(x.status)) for x in holders if hasattr(x, "status")]
    return jnp.bitwise_or.reduce(jnp.stack(bits)) & jnp.uint32(int(jc.Status.FAILURES))


def finite_parts(result):
    """The leaves of floats that a good result has no NaN in."""
    leaves = jax.tree_util.tree_leaves_with_path(result)
    return {
        jax.tree_util.keystr(path): leaf
        for path, leaf in leaves
        if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
        and "signorini" not in jax.tree_util.keystr(path)
    }


def silent(path):
    """The places and values whose poison ends in a NaN or infinity that the status does not tell of."""
    function = FUNCTIONS[path]
    signature = inspect.signature(function)
    values = arguments(path, signature)
    leaves, tree = jax.tree.flatten(values)
    moved = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) and leaf.dtype.kind == "f"]
    names = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(values)]

    @jax.jit
    def call(numbers):
        for k, number in zip(moved, numbers):
            leaves[k] = number
        result = function(**jax.tree.unflatten(tree, leaves))
        bad = {name: ~jnp.all(jnp.isfinite(leaf)) for name, leaf in finite_parts(result).items()}
        return status_of(result), bad

    good = [leaves[k] for k in moved]
    status, usual = call(good)
    assert int(status) == 0, f"{path}: the valid call fails"
    found = []
    for place, number in enumerate(good):
        for value in POISON:
            poisoned = list(good)
            poisoned[place] = jnp.ravel(number).at[0].set(value).reshape(number.shape)
            status, bad = call(poisoned)
            worse = [name for name in bad if bool(bad[name]) and not bool(usual[name])]
            if int(status) == 0 and worse:
                found.append((names[moved[place]], value, worse))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_what_is_not_finite_has_a_status(path):
    assert not silent(path)


def test_the_paths_are_functions_with_valid_calls():
    assert all(path in CALLS or "terms" in VALUES for path in PATHS)
    assert not [
        path for path in PATHS if path not in FUNCTIONS or (HOST.match(path) and "sample" not in path)
    ]

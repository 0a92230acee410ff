"""Every traceable public function lowers for a GPU: no call back to the host, no custom call but those named.

Nothing is compiled or run here; what is measured on a GPU is said in the results of the benchmarks.
"""

import re

import jax
import jax.export
import jax.numpy as jnp
import pytest
from helpers.traceable import CASES

CUSTOM_CALLS = {"cusolver_potrf_ffi"}  # the Cholesky factor of a single large Hessian


def calls(function, arguments):
    """Targets of the custom calls in the program for a GPU."""
    lowered = jax.export.export(jax.jit(function), platforms=["cuda"])(*arguments)
    return set(re.findall(r"custom_call @([\w.]+)", lowered.mlir_module()))


@pytest.mark.parametrize("batched", [pytest.param(False, marks=pytest.mark.slow), True], ids=["one", "batch"])
@pytest.mark.parametrize("name", CASES)
def test_a_function_lowers_for_a_gpu(name, batched):
    function, arguments = CASES[name]
    if batched:
        arguments = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 3), arguments)
        function = jax.vmap(function)
    found = calls(function, arguments)
    assert found <= CUSTOM_CALLS, found - CUSTOM_CALLS


def test_another_custom_call_would_be_seen():
    assert not calls(jnp.linalg.eigh, (jnp.eye(3),)) <= CUSTOM_CALLS


def test_a_call_back_to_the_host_does_not_lower():
    def prints(x):
        jax.debug.print("{}", x)
        return 2.0 * x

    with pytest.raises(ValueError, match="platform"):
        calls(prints, (jnp.ones(2),))

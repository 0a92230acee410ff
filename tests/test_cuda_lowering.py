"""Every traceable public function lowers for a GPU: no call back to the host, no custom call but those named.

Its products ask for all digits, which a GPU does not give by default in single precision. Nothing is compiled or run here; what is measured on a GPU is said in the results of the benchmarks.
"""

import re

import jax
import jax.export
import jax.numpy as jnp
import pytest
from helpers.traceable import CASES

DIFFERENTIATED = (
    "compliant.step",
    "simulate.variational",
    pytest.param("simulate.rollout from event to event", marks=pytest.mark.slow),
)
CUSTOM_CALLS = {"cusolver_potrf_ffi"}  # the Cholesky factor of a single large Hessian
OF_ONE_MATRIX = {"cusolver_getrf_ffi", "cu_lu_pivots_to_permutation"}  # LU factor; a batch takes lanes


def program(function, arguments):
    """The program for a GPU."""
    return jax.export.export(jax.jit(function), platforms=["cuda"])(*arguments).mlir_module()


def calls(text):
    """Targets of the custom calls in a program."""
    return set(re.findall(r"custom_call @([\w.]+)", text))


def rounded_products(text):
    """Lines of the products whose factors a GPU may round."""
    return [line for line in text.splitlines() if "stablehlo.dot_general" in line and "HIGHEST" not in line]


@pytest.mark.long
@pytest.mark.slow_cases(
    "anitescu_potra in space-batch",
    "anitescu_potra-batch",
    "outcomes-batch",
    "bias-batch",
    "compliant.rollout of a robot-batch",
    "compliant.rollout-batch",
    "compliant.step of static length-batch",
    "compliant.step of the nearest contacts-batch",
    "compliant.step with the associated cone, of static length-batch",
    "compliant.step-batch",
    "constraint_terms-batch",
    "contact_terms in space-batch",
    "contact_terms-batch",
    "ess.flow-batch",
    "linearize-batch",
    "paradox-batch",
    "plastic-batch",
    "propagate-batch",
    "propagate_all-batch",
    "resolve in space of static length-batch",
    "resolve in space-batch",
    "resolve of static length-batch",
    "resolve with restitution-batch",
    "resolve-batch",
    "routh_step-batch",
    "outcomes of a step-batch",
    "sample_in_jit in space-batch",
    "sample_in_jit with restitution-batch",
    "sample_in_jit, its derivative-batch",
    "sample_in_jit-batch",
    "sequential-batch",
    "simulate.rollout from event to event-batch",
    "simulate.rollout of time steps-batch",
    "simulate.rollout-batch",
    "simulate.time_augmented-batch",
    "simulate.variational-batch",
    "solve_lcp of static length-batch",
    "solve_lcp-batch",
)
@pytest.mark.parametrize("batched", [pytest.param(False, marks=pytest.mark.slow), True], ids=["one", "batch"])
@pytest.mark.parametrize("name", CASES)
def test_a_function_lowers_for_a_gpu(name, batched):
    function, arguments = CASES[name]
    if batched:
        arguments = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 3), arguments)
        function = jax.vmap(function)
    text = program(function, arguments)
    expected = CUSTOM_CALLS if batched else CUSTOM_CALLS | OF_ONE_MATRIX
    assert calls(text) <= expected, calls(text) - expected
    assert not rounded_products(text)


@pytest.mark.long
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_derivatives_ask_for_all_digits(name):
    """Rules of derivatives are traced after the function."""
    function, arguments = CASES[name]

    def total(first):
        leaves = jax.tree.leaves(function(first, *arguments[1:]))
        return sum(jnp.sum(leaf) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))

    assert not rounded_products(program(jax.grad(total), arguments[:1]))


def test_another_custom_call_would_be_seen():
    assert not calls(program(jnp.linalg.eigh, (jnp.eye(3),))) <= CUSTOM_CALLS


def test_a_rounded_product_would_be_seen():
    assert rounded_products(program(jnp.matmul, (jnp.eye(3), jnp.eye(3))))


def test_a_call_back_to_the_host_does_not_lower():
    def prints(x):
        jax.debug.print("{}", x)
        return 2.0 * x

    with pytest.raises(ValueError, match="platform"):
        program(prints, (jnp.ones(2),))

"""Every traceable public function lowers for a GPU: no call back to the host, no custom call but those named.

Nothing is compiled or run here; what is measured on a GPU is said in the results of the benchmarks.
"""

import functools
import re

import jax
import jax.export
import jax.numpy as jnp
import pytest

import jaxcontact as jc

CUSTOM_CALLS = {"cusolver_potrf_ffi"}  # the Cholesky factor of a single large Hessian
PLANAR = jc.models.compass_gait()
BOX = jc.models.box_drop_3d()
SLIDING = jc.models.box_on_incline(0.25)
AFFINE = jc.models.affine_3d()


def terms_of(model):
    """Zeros of the shapes that they have: numbers do not matter here."""
    shapes = jax.eval_shape(functools.partial(jc.contact_terms, model.system), model.params, model.state)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def mechanism(function, model, *more, **settings):
    return functools.partial(function, model.system, **settings), (model.params, model.state, *more)


PLANE, SPACE = terms_of(PLANAR), terms_of(BOX)
DRAWS = (jnp.full((5, 2), 0.2), jnp.zeros(5))
SPATIAL_DRAWS = (jnp.full((3, SPACE.phi.size), 0.2), jnp.zeros(3))
MATRIX, VECTOR = 2.0 * jnp.eye(4), -jnp.ones(4)
CASES = {
    "contact_terms": mechanism(jc.contact_terms, PLANAR),
    "contact_terms in space": mechanism(jc.contact_terms, BOX),
    "constraint_terms": mechanism(jc.constraint_terms, SLIDING),
    "bias": mechanism(jc.bias, PLANAR),
    "solve_lcp": (jc.solve_lcp, (MATRIX, VECTOR)),
    "anitescu_potra": (jc.impact.anitescu_potra, (PLANE, PLANAR.state.v)),
    "anitescu_potra in space": (jc.impact.anitescu_potra, (SPACE, BOX.state.v)),
    "anitescu_potra_all": (jc.impact.anitescu_potra_all, (PLANE, PLANAR.state.v)),
    "sequential": (
        functools.partial(jc.impact.sequential, order=(0, 1), max_impacts=4),
        (PLANE, PLANAR.state.v),
    ),
    "resolve": (jc.impact.resolve, (PLANE, PLANAR.state.v, *DRAWS)),
    "resolve with restitution": (
        functools.partial(jc.impact.resolve, restitution=0.5),
        (PLANE, PLANAR.state.v, *DRAWS),
    ),
    "resolve in space": (
        functools.partial(jc.impact.resolve, selection="lemke"),
        (SPACE, BOX.state.v, *SPATIAL_DRAWS),
    ),
    "routh_step": (jc.impact.routh_step, (PLANE, PLANAR.state.v, DRAWS[0][0])),
    "routh_step_all": (jc.impact.routh_step_all, (PLANE, PLANAR.state.v, DRAWS[0][0])),
    "propagate": (jc.impact.propagate, (PLANE, PLANAR.state.v)),
    "propagate_all": (jc.impact.propagate_all, (PLANE, PLANAR.state.v)),
    "plastic": (jc.impact.plastic, (PLANE, PLANAR.state.v)),
    "compliant.step": mechanism(jc.compliant.step, SLIDING, jnp.zeros(6), dt=0.01),
    "compliant.step of the nearest contacts": mechanism(
        jc.compliant.step, SLIDING, jnp.zeros(6), dt=0.01, max_contacts=2
    ),
    "compliant.rollout": mechanism(jc.compliant.rollout, SLIDING, jnp.zeros((3, 6)), dt=0.01),
    "compliant.rollout of a robot": mechanism(
        jc.compliant.rollout, jc.models.quadruped(), jnp.zeros((3, 12)), dt=0.002
    ),
    "simulate.rollout": mechanism(
        jc.simulate.rollout, SLIDING, jnp.zeros((3, 6)), stepper=jc.simulate.Compliant(), dt=0.01
    ),
    "simulate.variational": mechanism(
        jc.simulate.variational, jc.models.rocking_block(), dt=0.01, duration=0.03
    ),
    "ess.flow": (
        functools.partial(jc.ess.flow, AFFINE.system, t0=0.0, t1=0.1, eps=1e-3),
        (AFFINE.params, AFFINE.state),
    ),
}


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

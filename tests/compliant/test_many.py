"""Large batches must end: independent factorisations in one program have hung XLA's thread pool."""

import subprocess
import sys

import pytest

BATCH = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxcontact as jc
model = jc.models.box_on_incline(0.25)
v = jnp.asarray(np.random.default_rng(0).normal(size=(8192, 6)))

def step(v):
    start = model.initial_state().replace(v=v)
    state, info = jc.compliant.step(model, start, jnp.zeros(6), dt=0.01, settings=jc.compliant.Settings(cone={cone!r}))
    return state.v, info.status

v_plus, status = jax.jit(jax.vmap(step))(v)
assert np.all(np.isfinite(v_plus)), "not finite"
slope = jax.jit(jax.vmap(lambda v: jax.jvp(lambda v: step(v)[0], (v,), (v,))[1]))(v)
assert np.all(np.isfinite(slope)), "slopes not finite"
print(np.mean(np.asarray(status) == 0))
"""


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["associated", "coulomb"])
def test_a_batch_of_8192_ends(cone):
    """Steps and their derivatives, in a process of its own that is killed if it hangs."""
    done = subprocess.run(
        [sys.executable, "-c", BATCH.format(cone=cone)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) > (0.998 if cone == "associated" else 0.9)

"""A stepper with a random push, cheap to compile: worlds that differ in their keys alone."""

import jax
import jax.numpy as jnp

import jaxcontact as jc
from jaxcontact._pytree import Record
from jaxcontact.status import flag


class Drift(Record):
    """A stepper that pushes a disc at random, another way in each world and step."""

    size: float

    def init(self, model, state, key=None):
        return (key, jnp.int32(0))

    def closed(self, model, state):
        return jnp.ones(1, bool)

    def step(self, model, state, tau, memory, *, dt):
        key, number = memory
        v = state.v.at[0].add(self.size * jax.random.normal(jax.random.fold_in(key, number)))
        info = jc.simulate.StepperInfo(
            status=flag(~jnp.isfinite(v[0]), jc.Status.NONFINITE),
            residual=jnp.zeros(()),
            num_iters=jnp.int32(1),
            impulse=jnp.zeros((1, 2)),
            contacts=v[:1] > 1.0,
        )
        return state.replace(q=state.q + dt * v, v=v, t=state.t + dt), (key, number + 1), info

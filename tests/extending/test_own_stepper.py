"""A stepper of one's own: explicit Euler with a spring in each contact. Simple, and unstable if stiff.

A stepper is a pytree with `init`, `closed` and `step`; `jc.simulate.rollout` does the rest.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Springs:
    """M dv = (tau - bias + J_n^T k max(0, -phi)) dt, then q moves by the new velocity."""

    stiffness: jax.Array  # N/m

    def init(self, model, state, key):
        return None

    def closed(self, model, state):
        return jc.contact_terms(model, state).active

    def step(self, model, state, tau, memory, *, dt):
        terms = jc.contact_terms(model, state)
        push = self.stiffness * jnp.maximum(0.0, -terms.phi)
        force = tau - jc.bias(model, state) + terms.J_n.T @ push
        v = state.v + dt * jnp.linalg.solve(terms.M, force)
        then = jc.State(q=jc.retract(model, state.q, dt * v), v=v, t=state.t + dt)
        info = jc.simulate.StepperInfo(
            status=jnp.uint32(0),
            residual=jnp.zeros((), v.dtype),
            num_iters=jnp.int32(0),
            impulse=jnp.zeros((len(push), 1 + terms.J_t.shape[1])).at[:, 0].set(dt * push),
            contacts=terms.phi <= 0.0,
        )
        return then, memory, info


def height(stiffness):
    model = jc.models.rocking_block()  # 1 kg, 2 m tall, sinks a little into its springs
    start = model.initial_state().replace(q=model.initial_state().q.at[1].set(0.99), v=jnp.zeros(3))
    trajectory = jc.simulate.rollout(model, start, jnp.zeros((1000, 3)), stepper=Springs(stiffness), dt=1e-4)
    return trajectory.states.q[-1, 1]


def test_a_block_swings_on_its_springs_and_the_derivative_by_the_stiffness_is_that_of_the_closed_form():
    def exact(k):  # two springs, gravity shifts where it rests
        rest = 1.0 - 9.81 / (2.0 * k)
        return rest + (0.99 - rest) * jnp.cos(jnp.sqrt(2.0 * k) * 0.1)

    found, slope = jax.jvp(height, (jnp.array(600.0),), (jnp.array(1.0),))
    np.testing.assert_allclose(found, exact(600.0), atol=1e-4)
    np.testing.assert_allclose(slope, jax.grad(exact)(600.0), rtol=2e-2)

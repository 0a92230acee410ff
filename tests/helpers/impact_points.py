"""Impact laws as functions of one flat vector (v, q, params, impulse caps), and their differences.

Every planar case is padded to the same two contacts, seven velocities and six steps, and every input is
made to depend on whatever is differentiated by, so that each law compiles once per kind of derivative for
the whole file; the functions here are left outside of jit for the same reason.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import jaxcontact as jc
from jaxcontact import impact

NV, NC, STEPS, CHUNK = 7, 2, 6, 16
PICKS = (0.4, 0.1, 0.8, 0.3, 0.6, 0.9)


@jax.jit
def _depend(tree):
    """The same numbers, every one of them with a tangent if any has one."""
    nothing = 0.0 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree) if leaf.dtype != bool)
    return jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else leaf + nothing, tree)


def _law(function):
    return lambda terms, v, caps: function(*_depend((terms, v, caps)))


LAWS = {
    "anitescu_potra": _law(lambda t, v, caps: impact.anitescu_potra(t, v)),
    "routh_step": _law(lambda t, v, caps: impact.routh_step(t, v, caps[0], pick=0.4)),
    "sequential": _law(lambda t, v, caps: impact.sequential(t, v, (0, 1), max_impacts=8)),
    "resolve": _law(lambda t, v, caps: impact.resolve(t, v, caps, jnp.asarray(PICKS))),
    "routh_path": _law(lambda t, v, caps: impact.routh_path(t, v, caps[0], max_events=12)),
}


def pad(terms, v):
    """The same impact with NC contacts (the new ones inactive) and NV velocities (at rest)."""
    nc, _, nv = terms.J_t.shape
    more, wide = NC - nc, NV - nv
    mass = jnp.eye(NV, dtype=terms.M.dtype).at[:nv, :nv].set(terms.M)
    terms = terms.replace(
        M=mass,
        J_n=jnp.pad(terms.J_n, ((0, more), (0, wide))),
        J_t=jnp.pad(terms.J_t, ((0, more), (0, 0), (0, wide))),
        phi=jnp.pad(terms.phi, (0, more)),
        mu=jnp.pad(terms.mu, (0, more)),
        active=jnp.pad(terms.active, (0, more)),
    )
    return terms, jnp.pad(v, (0, wide))


def touching_terms(model, q):
    """Contact terms in which every candidate touches, whatever small gaps a difference in q opens."""
    state = jc.State(q=q, v=jnp.zeros(model.structure.num_velocities), t=jnp.zeros(()))
    terms = jc.contact_terms(model, state)
    return terms.replace(active=jnp.ones_like(terms.active), phi=jnp.zeros_like(terms.phi))


def model_case(name, seed, *, mu=None, shift=0.03):
    """Flat x of (v, q, mass, inertia, mu, constants, caps) near a model's start, and x -> law arguments."""
    model = getattr(jc.models, name)()
    rng = np.random.default_rng(seed)
    nv, nq, nc = len(model.initial_state().v), len(model.initial_state().q), len(model.params.mu)
    v = model.initial_state().v + jnp.asarray(rng.normal(size=nv))
    q = model.initial_state().q + jnp.asarray(shift * rng.normal(size=nq))
    caps = jnp.asarray(model.impulse_step * rng.uniform(0.2, 1.0, (STEPS, nc)))
    numbers = {k: getattr(model.params, k) for k in ("mass", "inertia", "mu", "constants")}
    if mu is not None:
        numbers["mu"] = jnp.full(nc, mu)
    x, unravel = ravel_pytree({"v": v, "q": q, "params": numbers, "caps": caps})

    def arguments(x):
        parts = unravel(x)
        terms = touching_terms(model.replace(params=model.params.replace(**parts["params"])), parts["q"])
        terms, v = pad(terms, parts["v"]) if nc <= NC else (terms, parts["v"])
        return terms, v, parts["caps"]

    return x, arguments


def _pushed(function, x, directions):
    return jax.vmap(lambda d: jax.jvp(function, (x,), (d,))[1])(directions)


def forward(function, x):
    """Jacobian (..., len(x)) of `function` at x by jvp, in chunks of one shape."""
    directions = np.eye(x.size)
    count = len(directions)
    directions = np.concatenate([directions, np.zeros((-count % CHUNK, x.size))]).reshape(-1, CHUNK, x.size)
    columns = np.concatenate([_pushed(function, x, jnp.asarray(d)) for d in directions])[:count]
    return np.moveaxis(columns, 0, -1)


def pulled(function, x):
    """The same Jacobian by vjp, traceable."""
    value, pullback = jax.vjp(function, x)
    return jax.vmap(pullback)(jnp.eye(value.size))[0]


def reverse(function, x):
    """The same Jacobian by vjp."""
    return np.asarray(pulled(function, x))


def differences(function, x, steps=None):
    """Fourth-order central differences, and which columns are smooth.

    Second differences over one and two steps are as 1 to 4 unless there is a kink or a jump inside the
    stencil, so nothing here relies on what the package says about modes.
    """
    x = np.asarray(x)
    steps = np.maximum(3e-4 * np.abs(x), 1e-6) if steps is None else np.full(x.size, steps)
    steps = np.where(x == 0, 1e-4, steps)
    here = np.asarray(function(jnp.asarray(x)))
    columns, smooth = [], []
    for i, h in enumerate(steps):
        e = h * (np.arange(x.size) == i)
        near_up, near_down, up, down = (
            np.asarray(function(jnp.asarray(x + k * e))) for k in (1.0, -1.0, 2.0, -2.0)
        )
        columns.append((8 * (near_up - near_down) - (up - down)) / (12 * h))
        misfit = abs((up - 2 * here + down) - 4 * (near_up - 2 * here + near_down)).max() / h
        smooth.append(misfit <= 1e-7 * (1 + abs(columns[-1]).max()))
    return np.moveaxis(np.array(columns), 0, -1), np.array(smooth)


@functools.cache
def point_mass_terms(mu, mass=2.0):
    """A planar point mass on the floor, v = (tangential, normal), padded."""
    terms = jc.ContactTerms(
        M=mass * jnp.eye(2),
        J_n=jnp.array([[0.0, 1.0]]),
        J_t=jnp.array([[[1.0, 0.0]]]),
        phi=jnp.zeros(1),
        mu=jnp.array([mu]),
        active=jnp.array([True]),
    )
    return pad(terms, jnp.zeros(2))[0]

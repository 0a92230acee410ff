"""Fixed tendons: lengths that are weighted sums of joint positions, with a spring, a damper and bounds.

The spring acts if the length leaves the interval in which the spring is relaxed. The interval may be a
point.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.tree import Tree, TreeParams, scalar_places


def lengths(tree: Tree, positions: jax.Array, numbers: TreeParams) -> jax.Array:
    """Compute the length (nt,) of each tendon from the positions of all hinges and slides, rad or m."""
    _, _, at_v = scalar_places(tree)
    return numbers.tendon_moment[:, at_v] @ positions


def stretches(tree: Tree, q: jax.Array, numbers: TreeParams) -> tuple[jax.Array, jax.Array]:
    """Compute the stretch (nt,) of each tendon beyond its relaxed interval, and whether its spring acts."""
    length = lengths(tree, q[scalar_places(tree)[1]], numbers)
    shortest, longest = numbers.tendon_rest[:, 0], numbers.tendon_rest[:, 1]
    stretch = jnp.where(
        length > longest, length - longest, jnp.where(length < shortest, length - shortest, 0.0)
    )
    return stretch, (length > longest) | (length < shortest) | (shortest == longest)


def passive_forces(tree: Tree, q: jax.Array, v: jax.Array, numbers: TreeParams) -> jax.Array:
    """Compute the generalized forces (nv,) of the springs and dampers of tendons."""
    moment = numbers.tendon_moment
    pull = numbers.tendon_stiffness * stretches(tree, q, numbers)[0] + numbers.tendon_damping * (moment @ v)
    return -moment.T @ pull


def spring_energy(tree: Tree, q: jax.Array, numbers: TreeParams) -> jax.Array:
    """Compute the potential energy of the springs of tendons, J."""
    return 0.5 * jnp.sum(numbers.tendon_stiffness * stretches(tree, q, numbers)[0] ** 2)


def yielding(tree: Tree, q: jax.Array, numbers: TreeParams) -> tuple[jax.Array, jax.Array]:
    """Compute the stiffness and damping matrices (nv, nv) of tendons."""
    moment, stretched = numbers.tendon_moment, stretches(tree, q, numbers)[1]
    stiffness = jnp.where(stretched, numbers.tendon_stiffness, 0.0)
    return moment.T @ (stiffness[:, None] * moment), moment.T @ (numbers.tendon_damping[:, None] * moment)

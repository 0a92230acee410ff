"""Systems whose field switches on guards: data and pure functions, no method of integration.

This module owns `EventSystem`, the counterpart of `System` for motion that is smooth except on the zero sets
of guard functions. It evaluates the field for a mask of crossed guards, guard values and rates, and the mask
after a crossing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.front_door import checked

# field(t, x, signs, control, params) -> xdot (n,); signs (m,) is +1 for a crossed guard, else -1
Field = Callable[[jax.Array, jax.Array, jax.Array, PyTree, PyTree], jax.Array]
# guards(x, params) -> h (m,); an armed guard is crossed when it grows through zero
Guards = Callable[[jax.Array, PyTree], jax.Array]
# jump(x, k, params) -> x_plus (n,), the state after the crossing of guard k
Jump = Callable[[jax.Array, jax.Array, PyTree], jax.Array]


@checked()
@dataclasses.dataclass(frozen=True)
class EventSystem:
    """An event-selected system: xdot = f(t, x, s), s the mask of crossed guards (Burden et al. 2016).

    The mask is part of the state of an integration. It is never read from the sign of h, which is noise on a
    guard. A guard k is armed or crossed. An armed guard is crossed when h_k grows through zero, and the
    crossing of k arms the guards j with rearm[k][j] again. A re-armed guard may sit on its own zero set
    (lift-off at touch-down); it counts again after it has left its band, or has come back to zero from below.

    An `EventSystem` is hashable and static. Write its functions at module level: two systems of the same
    functions are equal and compile once, but a fresh closure compiles again at every call. All numbers go
    through `params` and `control`.

    Attributes:
        field: (t, x (n,), signs (m,), control, params) -> xdot (n,); signs are +1 crossed, -1 not. For
            every mask it must be smooth across the guards: a step looks a little beyond them.
        guards: (x, params) -> h (m,).
        rearm: (m, m) bool, the guard reset matrix: crossing k re-arms j. Default: nothing is re-armed.
        jump: (x, k, params) -> state after the crossing of guard k (int32 array). Default: none.

    Raises:
        ValueError: `rearm` is not a square matrix of booleans, or a guard without a jump re-arms itself,
            which would be crossed and not crossed at once.
        TypeError: `field`, `guards` or `jump` cannot be called.
    """

    field: Field
    guards: Guards
    rearm: PyTree = dataclasses.field(default=None, kw_only=True)
    jump: Jump | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("field", "guards", "jump"):
            value = getattr(self, name)
            if not callable(value) and not (name == "jump" and value is None):
                raise TypeError(f"{name}: expected a function, got {type(value).__name__}")
        if self.rearm is None:
            return
        matrix = np.asarray(self.rearm)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"rearm: expected a square matrix (m, m), got shape {matrix.shape}")
        if matrix.dtype != np.bool_:
            raise ValueError(f"rearm: expected booleans, got {matrix.dtype}")
        self_rearming = np.flatnonzero(np.diagonal(matrix))
        if self_rearming.size and self.jump is None:
            raise ValueError(
                f"rearm: crossing guard {self_rearming[0]} would re-arm itself, so it would be crossed and "
                "not crossed at once; only a guard with a jump may re-arm itself"
            )
        # A tuple of tuples is hashable; an array is not.
        object.__setattr__(self, "rearm", tuple(tuple(bool(b) for b in row) for row in matrix))

    def rearm_matrix(self, num_guards: int) -> np.ndarray:
        """Return the guard reset matrix (m, m), all False if the system has none."""
        if self.rearm is None:
            return np.zeros((num_guards, num_guards), bool)
        return np.array(self.rearm)

    def xdot(
        self, t: jax.Array, x: jax.Array, crossed: jax.Array, control: PyTree, params: PyTree
    ) -> jax.Array:
        """Evaluate the field (n,) at (t, x) with the mask `crossed` (m,) bool."""
        signs = jnp.where(crossed, 1.0, -1.0).astype(x.dtype)
        return self.field(t, x, signs, control, params)

    def guard_rates(self, x: jax.Array, xdot: jax.Array, params: PyTree) -> tuple[jax.Array, jax.Array]:
        """Compute guard values h (m,) and their rates Dh xdot (m,) along a velocity."""
        return jax.jvp(lambda y: self.guards(y, params), (x,), (xdot,))

    def cross(self, crossed: jax.Array, k: jax.Array) -> jax.Array:
        """Return the mask (m,) after the crossing of guard k."""
        m = crossed.shape[0]
        hit = jnp.arange(m) == k
        return (crossed | hit) & ~jnp.asarray(self.rearm_matrix(m))[k]

    def after(self, x: jax.Array, k: jax.Array, params: PyTree) -> jax.Array:
        """Return the state (n,) after the crossing of guard k at x."""
        return x if self.jump is None else self.jump(x, k, params)

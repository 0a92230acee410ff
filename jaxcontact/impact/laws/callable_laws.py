"""Impact laws as callable records of settings, for every argument that expects a law.

A law is a callable (terms, v, key=None) -> (v_plus, info), info having `status` and `impulse`. The records
here are such callables and pytrees: their numbers are differentiable, their choices are static.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree, Record, callable_as_pytree, static
from jaxcontact.arguments import (
    check_corner,
    check_fraction,
    check_not_negative,
    check_positive,
    check_rows,
    check_sides,
)
from jaxcontact.front_door import checked
from jaxcontact.impact.laws.anitescu_potra import anitescu_potra, sequential
from jaxcontact.impact.laws.chain import chain
from jaxcontact.impact.laws.contact_space import ImpactInfo
from jaxcontact.impact.laws.paths_one_sided import follow_path
from jaxcontact.impact.laws.propagative import PropagateInfo, plastic, propagate
from jaxcontact.impact.laws.reflections import Order, check_order_word
from jaxcontact.impact.laws.routh import resolve, routh_step
from jaxcontact.impact.laws.routh_law import Routh
from jaxcontact.impact.laws.routh_path import RouthPathInfo, routh_path
from jaxcontact.impact.laws.simultaneous import newton, poisson
from jaxcontact.terms import ContactTerms

Law = Callable[..., tuple[jax.Array, PyTree]]  # (terms, v, key) -> (v_plus, info)


@checked(num_directions=check_sides, corner=check_corner)
class AnitescuPotra(Record):
    """All contacts at once, inelastic, Coulomb friction; see `anitescu_potra`.

    Attributes:
        num_directions: None for the circular friction cone, or its number of sides in space.
        corner: derivative between two modes, "smooth" or "one_sided".
    """

    num_directions: int | None = static(default=None)
    corner: str = static(default="smooth")

    def __call__(
        self,
        terms: ContactTerms,
        v: jax.Array,
        key: jax.Array | None = None,
        *,
        clearance: jax.Array | None = None,
    ) -> tuple[jax.Array, ImpactInfo]:
        """Resolve the impact; return v_plus (nv,) and ImpactInfo. `key` is not used."""
        return anitescu_potra(
            terms, v, num_directions=self.num_directions, clearance=clearance, corner=self.corner
        )


@checked(max_impacts=check_rows, num_directions=check_sides, corner=check_corner)
class Sequential(Record):
    """Single inelastic impacts one after the other, Coulomb friction; see `sequential`.

    Attributes:
        order: cycle of contact indices; None is 0, 1, 2, ...
        max_impacts: largest number of single impacts.
        num_directions: None for the circular friction cone, or its number of sides in space.
        corner: derivative between two modes, "smooth" or "one_sided".
    """

    order: tuple[int, ...] | None = static(default=None)
    max_impacts: int = static(default=64)
    num_directions: int | None = static(default=None)
    corner: str = static(default="smooth")

    def __call__(
        self,
        terms: ContactTerms,
        v: jax.Array,
        key: jax.Array | None = None,
        *,
        clearance: jax.Array | None = None,
    ) -> tuple[jax.Array, ImpactInfo]:
        """Resolve the impact; return v_plus (nv,) and ImpactInfo. `key` is not used."""
        order = tuple(range(terms.phi.shape[0])) if self.order is None else self.order
        return sequential(
            terms, v, order, max_impacts=self.max_impacts, num_directions=self.num_directions,
            clearance=clearance, corner=self.corner,
        )  # fmt: skip


@checked(restitution=check_fraction, num_directions=check_sides, corner=check_corner)
class Newton(Record):
    """All contacts at once, Newton's restitution of speeds, Coulomb friction; see `newton`.

    Attributes:
        restitution: e in 0..1, a number or (nc,).
        num_directions: None for the circular friction cone, or its number of sides in space.
        corner: derivative between two modes, "smooth" or "one_sided".
    """

    restitution: float | jax.Array
    num_directions: int | None = static(default=None)
    corner: str = static(default="smooth")

    def __call__(
        self, terms: ContactTerms, v: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, ImpactInfo]:
        """Resolve the impact; return v_plus (nv,) and ImpactInfo. `key` is not used."""
        e, sides = self.restitution, self.num_directions
        return newton(terms, v, restitution=e, num_directions=sides, corner=self.corner)


@checked(restitution=check_fraction, num_directions=check_sides, corner=check_corner)
class Poisson(Record):
    """All contacts at once, Poisson's restitution of impulses, Coulomb friction; see `poisson`.

    Attributes:
        restitution: e in 0..1, a number or (nc,).
        num_directions: None for the circular friction cone, or its number of sides in space.
        corner: derivative between two modes, "smooth" or "one_sided".
    """

    restitution: float | jax.Array
    num_directions: int | None = static(default=None)
    corner: str = static(default="smooth")

    def __call__(
        self, terms: ContactTerms, v: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, ImpactInfo]:
        """Resolve the impact; return v_plus (nv,) and ImpactInfo. `key` is not used."""
        e, sides = self.restitution, self.num_directions
        return poisson(terms, v, restitution=e, num_directions=sides, corner=self.corner)


@checked(restitution=check_fraction, rates=check_not_negative, max_events=check_rows, corner=check_corner)
class Energetic(Record):
    """Stronge's energetic restitution along Routh's path in the plane, exact; see `routh_path`.

    Attributes:
        restitution: e in 0..1, a number or (nc,).
        rates: (nc,) relative rates of normal impulse, in a chain its impulse correlation ratios (Ceanga &
            Hurmuzlu 2001); None is 1 for all.
        max_events: largest number of pieces of the path.
        corner: derivative where contacts reach events together, "smooth" or "one_sided": `jax.jvp` is that of
            the path in the direction, not linear in it; JUMP and NaN if paths end elsewhere.
    """

    restitution: float | jax.Array
    rates: float | jax.Array | None = None
    max_events: int = static(default=100)
    corner: str = static(default="smooth")

    def __call__(
        self, terms: ContactTerms, v: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, RouthPathInfo]:
        """Resolve the impact; return v_plus (nv,) and RouthPathInfo. `key` is not used."""
        rates = jnp.ones_like(terms.phi) if self.rates is None else jnp.asarray(self.rates, v.dtype)
        if self.corner == "one_sided":
            return follow_path(terms, v, rates, self.max_events, jnp.asarray(self.restitution, v.dtype))
        return routh_path(terms, v, rates, max_events=self.max_events, restitution=self.restitution)


@checked(stiffness=check_positive, restitution=check_fraction, max_steps=check_rows, corner=check_corner)
class Chain(Record):
    """All contacts at once through springs of known stiffness ratios, without friction; see `chain`.

    Attributes:
        stiffness: relative stiffnesses, a number or (nc,).
        restitution: energetic, in 0.1..1, a number or (nc,).
        max_steps: largest number of time steps.
        corner: derivative where a contact just touches, "smooth" or "one_sided".
    """

    stiffness: float | jax.Array
    restitution: float | jax.Array = 1.0
    max_steps: int = static(default=8192)
    corner: str = static(default="smooth")

    def __call__(
        self, terms: ContactTerms, v: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, ImpactInfo]:
        """Resolve the impact; return v_plus (nv,) and ImpactInfo. `key` is not used."""
        return chain(
            terms, v, stiffness=self.stiffness, restitution=self.restitution, max_steps=self.max_steps,
            corner=self.corner,
        )  # fmt: skip


@checked(order=check_order_word, restitution=check_fraction, max_reflections=check_rows, corner=check_corner)
class Propagative(Record):
    """Single impacts one after the other without friction, elastic to plastic; see `propagate`.

    Attributes:
        order: "most_violated", "least_violated", or a cycle of contact indices.
        restitution: R in 0..1.
        max_reflections: largest number of single impacts.
        corner: derivative at ties and between two modes, "smooth" or "one_sided".
    """

    order: Order = static(default="most_violated")
    restitution: float | jax.Array = 1.0
    max_reflections: int = static(default=64)
    corner: str = static(default="smooth")

    def __call__(
        self, terms: ContactTerms, v: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, PropagateInfo]:
        """Resolve the impact; return v_plus (nv,) and PropagateInfo. `key` is not used."""
        return propagate(
            terms, v, order=self.order, restitution=self.restitution, max_reflections=self.max_reflections,
            corner=self.corner,
        )  # fmt: skip


@checked(corner=check_corner)
class Plastic(Record):
    """The feasible velocity nearest to v in the kinetic metric, without friction; see `plastic`.

    Attributes:
        unilateral: contacts push only; else they glue.
        corner: derivative between two modes, "smooth" or "one_sided".
    """

    unilateral: bool = static(default=True)
    corner: str = static(default="smooth")

    def __call__(
        self, terms: ContactTerms, v: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, PropagateInfo]:
        """Resolve the impact; return v_plus (nv,) and PropagateInfo. `key` is not used."""
        return plastic(terms, v, unilateral=self.unilateral, corner=self.corner)


def pressing_law(law: Law) -> Law:
    """Choose the law of contacts that press without striking, which takes a `clearance`.

    An inelastic `law` with friction stays, `Routh` loses its restitution; the others become `AnitescuPotra`,
    because a lasting contact has the friction of the mechanism, independent of the law of its impact.
    """
    if isinstance(law, AnitescuPotra | Sequential):
        return law
    if isinstance(law, Newton | Poisson):
        return AnitescuPotra(num_directions=law.num_directions, corner=law.corner)
    if isinstance(law, Routh):
        return law if law.restitution is None else law.replace(restitution=None)
    return AnitescuPotra()


# Functions with settings of their own after (terms, v), and the records that stand for them.
RECORDS: tuple[tuple[Law, Callable[[], Law]], ...] = (
    (anitescu_potra, AnitescuPotra),
    (sequential, Sequential),
    (propagate, Propagative),
    (plastic, Plastic),
)
NEED_SETTINGS = {
    resolve: "Routh(impulse_step=, max_steps=)",
    routh_step: "Routh(impulse_step=, max_steps=)",
    routh_path: "Energetic(restitution=, rates=)",
    newton: "Newton(restitution=)",
    poisson: "Poisson(restitution=)",
    chain: "Chain(stiffness=)",
}


def law_as_pytree(law: Law, name: str = "law") -> PyTree:
    """Convert the law to a pytree for jitted functions; a plain function becomes static.

    The functions `anitescu_potra`, `sequential`, `propagate` and `plastic` become their records.

    Raises:
        TypeError: an object that is not callable, or a callable that does not take (terms, v, key).
    """
    expected = f"{name}: expected a callable (terms, v, key) -> (v_plus, info), got"
    if not callable(law):
        raise TypeError(f"{expected} {type(law).__name__}")
    for function, record in RECORDS:
        if law is function:
            return record()
    for unset, use in NEED_SETTINGS.items():
        if law is unset:
            raise TypeError(f"{expected} {law.__name__}; use jc.impact.{use}")
    try:
        inspect.signature(law).bind(None, None, None)
    except TypeError as error:
        raise TypeError(f"{expected} one for which {error}") from None
    except ValueError:  # a callable whose signature Python cannot read
        pass
    return callable_as_pytree(law)

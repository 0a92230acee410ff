"""Checks of user input: a named error if a mistake is visible outside `jit`, else a status bit.

Shapes and dtypes are always known. Values are known outside of `jit` and `vmap`: then a bad number
raises (entry `check`). Inside, `prepare` sets status bits on exactly the affected worlds and replaces their
terms by harmless ones, so that neither a value nor a derivative of another world contains a NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import small_dense
from jaxcontact.arguments import check_array as check_array
from jaxcontact.arguments import check_count as check_count
from jaxcontact.arguments import check_integer as check_integer
from jaxcontact.arguments import check_type
from jaxcontact.arguments import is_concrete as is_concrete
from jaxcontact.arguments import is_key as is_key
from jaxcontact.precision import check_precision
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms, touch_tolerance

SYMMETRY = 1e-6  # asymmetry of M, relative to sqrt(M_ii M_jj): more is a mistake, round-off is less


def check_terms(terms: ContactTerms) -> None:
    """Raise TypeError unless `terms` are ContactTerms."""
    check_type("terms", terms, ContactTerms, "; make them with contact_terms(model, state)")


def check_order(name: str, order: object, num_contacts: int) -> tuple[int, ...]:
    """Return `order` as a tuple; raise ValueError unless it is a cycle of contact indices."""
    cycle = tuple(order) if isinstance(order, Sequence | np.ndarray) else ()
    if not cycle or not all(isinstance(i, int | np.integer) and 0 <= i < num_contacts for i in cycle):
        raise ValueError(f"{name}: expected contact indices in 0..{num_contacts - 1}, got {order!r}")
    return tuple(map(int, cycle))


def check_shapes(terms: ContactTerms, v: jax.Array) -> None:
    """Raise ValueError or TypeError if the arrays do not fit together."""
    check_terms(terms)
    arrays = {f"terms.{n}": getattr(terms, n) for n in ("M", "J_n", "J_t", "phi", "mu")} | {"v": v}
    for name, array in arrays.items():
        check_array(name, array)
    if jnp.ndim(terms.J_n) != 2 or jnp.ndim(terms.J_t) != 3:
        raise ValueError(
            "terms: expected J_n (nc, nv) and J_t (nc, nt, nv), got "
            f"{jnp.shape(terms.J_n)} and {jnp.shape(terms.J_t)}; use vmap for batches"
        )
    nc, nv = jnp.shape(terms.J_n)
    nt = jnp.shape(terms.J_t)[1]
    if nc == 0:
        raise ValueError("terms: at least one candidate contact is needed, got none")
    if nt not in (1, 2):
        raise ValueError(f"terms.J_t: expected nt = 1 (plane) or 2 (space), got {nt}")
    expected = {"M": (nv, nv), "J_t": (nc, nt, nv), "phi": (nc,), "mu": (nc,), "active": (nc,)}
    for name, shape in expected.items():
        if jnp.shape(getattr(terms, name)) != shape:
            raise ValueError(f"terms.{name}: expected shape {shape}, got {jnp.shape(getattr(terms, name))}")
    if jnp.shape(v) != (nv,):
        raise ValueError(f"v: expected shape ({nv},), got {jnp.shape(v)}; use vmap for batches")
    if jnp.asarray(terms.active).dtype != jnp.bool_:
        raise TypeError(f"terms.active: expected bool, got {jnp.asarray(terms.active).dtype}")


def check_values(terms: ContactTerms, v: jax.Array) -> None:
    """Raise ValueError for bad numbers; only for input that is not traced."""
    arrays = {n: np.asarray(getattr(terms, n)) for n in ("M", "J_n", "J_t", "phi", "mu")}
    for name, array in [(f"terms.{n}", a) for n, a in arrays.items()] + [("v", np.asarray(v))]:
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf")
    if np.any(arrays["mu"] < 0):
        raise ValueError(f"terms.mu: friction must be >= 0, got {arrays['mu'].min()}")
    check_mass("terms.M", arrays["M"])
    with np.errstate(over="ignore", invalid="ignore"):
        energy = np.asarray(v) @ (arrays["M"] @ np.asarray(v))
    if not np.isfinite(energy):
        raise ValueError(f"v: its kinetic energy leaves the range of {np.asarray(v).dtype}; use larger units")
    with jax.ensure_compile_time_eval():  # the terms have values, and jit would trace what is made of them
        tolerance = float(touch_tolerance(terms.J_n))
    if np.any(arrays["phi"] < -tolerance):
        worst = int(np.argmin(arrays["phi"]))
        raise ValueError(
            f"terms.phi: contact {worst} penetrates by {-arrays['phi'][worst]:.3g} m (allowed: "
            f"{tolerance:g} m); move the bodies apart before resolving an impact"
        )


def check_mass(name: str, mass: np.ndarray) -> None:
    """Raise ValueError for a known mass matrix that is not finite, symmetric and positive definite."""
    if not np.all(np.isfinite(mass)):
        raise ValueError(f"{name}: expected finite numbers, got NaN or inf")
    size = np.sqrt(np.abs(np.diag(mass)))  # of rows and columns, which may be in kg and in kg m^2
    if np.any(np.abs(mass - mass.T) > SYMMETRY * np.outer(size, size)):
        raise ValueError(f"{name}: the mass matrix is not symmetric; use (M + M.T) / 2")
    size = np.where(size > 0, size, 1.0)
    if np.linalg.eigvalsh(mass / np.outer(size, size))[0] <= 0:
        lowest = np.linalg.eigvalsh(mass)[0]
        raise ValueError(
            f"{name}: the mass matrix must be positive definite, its lowest eigenvalue is {lowest:.3g}; "
            "give every coordinate some mass or inertia"
        )


def check_impulse_max(impulse_max: jax.Array, shape: tuple[int, ...]) -> None:
    """Raise if the cap on the normal impulse has the wrong shape, or a known value is bad."""
    check_array("impulse_max", impulse_max)
    if jnp.shape(impulse_max) != shape:
        raise ValueError(f"impulse_max: expected shape {shape}, got {jnp.shape(impulse_max)}")
    if is_concrete(impulse_max):
        values = np.asarray(impulse_max)
        if not np.all(np.isfinite(values)) or np.any(values < 0):
            raise ValueError(f"impulse_max: expected finite numbers >= 0 (N s), got {values}")


def check_restitution(terms: ContactTerms, restitution: jax.typing.ArrayLike) -> None:
    """Raise ValueError for coefficients of another shape than () or (nc,), or known ones outside 0..1."""
    nc = jnp.shape(terms.phi)[0]
    if np.shape(restitution) not in ((), (nc,)):
        raise ValueError(
            f"restitution: expected a number or shape ({nc},), got shape {np.shape(restitution)}"
        )
    if is_concrete(restitution):
        values = np.asarray(restitution, float)
        if not np.all((values >= 0) & (values <= 1)):
            raise ValueError(f"restitution: expected numbers in 0..1, got {restitution}")


def check_clearance(clearance: jax.Array | None, terms: ContactTerms) -> None:
    """Raise if a clearance, of normals (nc,) or all directions (nc, 1 + nt), has another shape or is bad."""
    if clearance is None:
        return
    of_normals = jnp.ndim(clearance) < 2
    nc, nt = terms.J_t.shape[:2]
    check_array("clearance", clearance, (nc,) if of_normals else (nc, 1 + nt))
    if is_concrete(clearance):
        values = np.asarray(clearance)
        if not np.all(np.isfinite(values)) or (of_normals and np.any(values < 0)):
            raise ValueError(f"clearance: expected finite numbers{' >= 0' * of_normals} (m/s), got {values}")


def prepare_clearance(clearance: jax.Array | None) -> tuple[jax.Array | None, jax.Array]:
    """Return the clearance, zero if it is bad, and the status bits that say why; traceable."""
    if clearance is None:
        return None, jnp.uint32(0)
    finite = jnp.all(jnp.isfinite(clearance))
    negative = jnp.ndim(clearance) < 2 and jnp.any(clearance < 0)
    status = flag(~finite, Status.NONFINITE) | flag(negative, Status.INVALID)
    return jnp.where(status == 0, clearance, 0.0), status


def check_pick(pick: jax.Array | float, shape: tuple[int, ...]) -> None:
    """Raise if the choice among solutions has the wrong shape, or a known value is not in [0, 1)."""
    if jnp.shape(pick) != shape:
        raise ValueError(f"pick: expected shape {shape}, got {jnp.shape(pick)}")
    if is_concrete(pick):
        values = np.asarray(pick)
        if not np.all((values >= 0) & (values < 1)):
            raise ValueError(f"pick: expected numbers in [0, 1), got {values}")


def check(terms: ContactTerms, v: jax.Array) -> None:
    """Check the shapes of the input of an impact law and, outside of `jit`, its values and precision."""
    check_shapes(terms, v)
    if is_concrete(terms, v):
        check_values(terms, v)
        check_precision(terms.M, terms.mu)


def check_planar_enumeration(terms: ContactTerms, max_contacts: int) -> None:
    """Raise ValueError if exhaustive enumeration of contact modes is not offered."""
    nc, nt = terms.J_t.shape[:2]
    if nt != 1 or nc > max_contacts:
        case = "spatial contacts (nt = 2)" if nt != 1 else f"{nc} contacts"
        raise ValueError(
            f"routh_path: contact modes are enumerated for planar systems of up to {max_contacts} contacts, "
            f'got {case}; use selection="lemke" (one solution per step, by pivoting), or leave contacts out'
        )


def impulse_status(impulse_max: jax.Array) -> jax.Array:
    """Return the status bits of invalid largest impulses; traceable."""
    finite = jnp.all(jnp.isfinite(impulse_max))
    return flag(~finite, Status.NONFINITE) | flag(jnp.any(impulse_max < 0), Status.INVALID)


def prepare(terms: ContactTerms, v: jax.Array) -> tuple[ContactTerms, jax.Array, jax.Array]:
    """Replace bad (terms, v) by harmless ones, and return them with status bits that say why; traceable.

    Terms do not depend on v, so that worlds with the same terms share what is computed of them.
    """
    numbers_finite = jnp.bool_(True)
    for array in (terms.M, terms.J_n, terms.J_t, terms.phi, terms.mu):
        numbers_finite &= jnp.all(jnp.isfinite(array))
    # Every law compares with the energy.
    finite = numbers_finite & jnp.all(jnp.isfinite(v)) & jnp.isfinite(v @ (terms.M @ v))
    size = jnp.sqrt(jnp.abs(jnp.diagonal(terms.M)))
    symmetric = jnp.all(jnp.abs(terms.M - terms.M.T) <= SYMMETRY * size[:, None] * size[None])
    _, pivot = small_dense.spd_inverse(jax.lax.stop_gradient(terms.M))
    valid = symmetric & (pivot > 0) & jnp.all(terms.mu >= 0)
    deep = jnp.any(terms.phi < -touch_tolerance(terms.J_n))
    status = (
        flag(~finite, Status.NONFINITE)
        | flag(finite & ~valid, Status.INVALID)
        | flag(deep, Status.PENETRATION)
    )
    good, sound = status == 0, numbers_finite & valid & ~deep
    identity = jnp.eye(v.shape[0], dtype=terms.M.dtype)
    safe = ContactTerms(
        M=jnp.where(sound, terms.M, identity),
        J_n=jnp.where(sound, terms.J_n, 0.0),
        J_t=jnp.where(sound, terms.J_t, 0.0),
        phi=jnp.where(sound, terms.phi, 0.0),
        mu=jnp.where(sound, terms.mu, 0.0),
        active=terms.active & sound,
    )
    return safe, jnp.where(good, v, 0.0), status

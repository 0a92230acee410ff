"""The content of a picture of an impact, in contact velocities: samples, and the outcomes of other laws.

Owns the step from samples and outcomes in generalized velocities to curves of the contacts' velocities. The
entry function is `contact_curves`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_numbers
from jaxcontact.front_door import checked
from jaxcontact.impact import AnitescuPotra, ImpactSamples, anitescu_potra, outcomes
from jaxcontact.impact.laws.contact_space import colliding
from jaxcontact.solvers.contact_modes import MAX_ENUMERATED
from jaxcontact.terms import ContactTerms

MAX_IMPACTS = 50  # single impacts drawn of a sequence; limits sequences that do not end


@checked(simultaneous=check_numbers, mujoco=check_numbers)
@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherOutcomes:
    """Outcomes of other laws, to draw beside samples.

    Attributes:
        simultaneous: (k, nv) outcomes of the simultaneous law; None is all of Anitescu & Potra's in the
            plane, one of them in space or beyond five contacts. An empty sequence draws none.
        sequences: (k, nv) velocities from before to after one or more single impacts, by label; None is
            the cyclic orders of two contacts. An empty mapping draws none.
        mujoco: (nv,) one outcome of a simulator, drawn as a star.
    """

    simultaneous: PyTree = None
    sequences: Mapping[str, PyTree] | None = None
    mujoco: PyTree = None


@dataclasses.dataclass(frozen=True)
class Curves:
    """The curves to draw, in contact velocities (..., nc, 2): normal, and tangential."""

    before: np.ndarray  # (nc, 2)
    ends: np.ndarray  # (n, nc, 2)
    paths: np.ndarray  # (m, k, nc, 2)
    simultaneous: np.ndarray  # (k, nc, 2)
    sequences: dict[str, np.ndarray]  # each (k, nc, 2)
    other: np.ndarray  # (0 or 1, nc, 2)

    def everything(self) -> np.ndarray:
        """Join all points of all curves, (k, nc, 2)."""
        nc = self.before.shape[0]
        flat = [self.before[None], self.paths.reshape(-1, nc, 2), *self.sequences.values()]
        return np.concatenate([*flat, self.outcomes()])

    def outcomes(self) -> np.ndarray:
        """Join the end points of all curves, (k, nc, 2)."""
        last = [path[-1:] for path in self.sequences.values()]
        return np.concatenate([self.ends, self.simultaneous, *last])


def contact_curves(
    samples: ImpactSamples,
    terms: ContactTerms,
    shown: np.ndarray,
    beside: OtherOutcomes,
    labels: tuple[str, ...],
    max_paths: int,
) -> Curves:
    """Compute the curves of a picture; arguments as of `plot_impact_set`.

    Args:
        shown: indices of the contacts drawn; the curves have all contacts.
        labels: of all contacts.

    Raises:
        ValueError: for velocities that are not finite or do not fit the terms, or no sample without failure.
    """
    nv = np.shape(terms.M)[0]
    good = np.flatnonzero(np.asarray(samples.status) == 0)
    if not good.size:
        raise ValueError("samples: expected at least one sample with status 0, got none")
    simultaneous, sequences = beside.simultaneous, beside.sequences
    if simultaneous is None:
        simultaneous = simultaneous_outcomes(terms, samples.v_minus)
    if sequences is None:
        sequences = sequences_of_two(terms, samples.v_minus, labels)

    def contact_velocities(name: str, values: PyTree) -> np.ndarray:
        """Convert (k, nv) to (k, nc, 2)."""
        values = np.asarray(values, float)
        if values.size == 0:
            return np.zeros((0, np.shape(terms.phi)[0], 2))
        values = np.atleast_2d(values)
        if values.ndim != 2 or values.shape[1] != nv or not np.all(np.isfinite(values)):
            raise ValueError(f"{name}: expected finite velocities (k, {nv}), got {values.shape}")
        normal = values @ np.asarray(terms.J_n).T
        tangential = np.einsum("kv,ctv->kct", values, np.asarray(terms.J_t))
        planar = tangential.shape[2] == 1
        slip = tangential[:, :, 0] if planar else np.linalg.norm(tangential, axis=2)
        return np.stack([normal, slip], axis=-1)

    paths = np.zeros((0, 1, np.shape(terms.phi)[0], 2))
    if samples.path is not None:
        shown = good[good < samples.path.shape[0]][:max_paths]  # fewer paths than samples may be there
        chosen = np.asarray(samples.path[: shown.max(initial=-1) + 1])[shown]
        if chosen.size:
            flat = contact_velocities("samples.path", chosen.reshape(-1, nv))
            paths = flat.reshape(*chosen.shape[:2], *flat.shape[1:])
    return Curves(
        before=contact_velocities("samples.v_minus", samples.v_minus)[0],
        ends=contact_velocities("samples.v_plus", np.asarray(samples.v_plus)[good]),
        paths=paths,
        simultaneous=contact_velocities("simultaneous", simultaneous),
        sequences={k: contact_velocities(f"sequences[{k!r}]", v) for k, v in sequences.items()},
        other=contact_velocities("mujoco", () if beside.mujoco is None else beside.mujoco),
    )


def simultaneous_outcomes(terms: ContactTerms, v: jax.Array) -> np.ndarray:
    """Compute outcomes (k, nv) of the simultaneous law: all if they can be enumerated, else at most one."""
    if _enumerable(terms):
        few = np.shape(terms.phi)[0] <= MAX_ENUMERATED
        touching = terms if few else terms.take(np.flatnonzero(np.asarray(terms.active)))
        velocities, valid = _every_outcome(touching, v)
        return np.asarray(velocities)[np.asarray(valid)]
    velocity, info = anitescu_potra(terms, v)
    return np.asarray(velocity)[None] if int(info.status) == 0 else np.zeros((0, velocity.shape[0]))


def sequences_of_two(terms: ContactTerms, v: jax.Array, labels: Sequence[str]) -> dict[str, np.ndarray]:
    """Compute velocities through single impacts one at a time, for either of two contacts first.

    The impacts are those of `impact.sequential`, in single steps, because the picture shows the velocities in
    between. The result is empty unless exactly two contacts are active.
    """
    active = [int(i) for i in np.flatnonzero(np.asarray(terms.active))]
    paths: dict[str, np.ndarray] = {}
    if len(active) != 2:
        return paths
    terms, labels = terms.take(np.array(active)), [labels[i] for i in active]
    for order in ([0, 1], [1, 0]):
        path, place = [np.asarray(v)], 0
        for _ in range(MAX_IMPACTS):
            approaching = np.asarray(colliding(terms, path[-1], v))
            if not approaching.any():
                break
            contact = order[place] if approaching[order[place]] else order[1 - place]
            place = 1 - order.index(contact)
            path.append(_after_one(terms, contact, path[-1]))
        paths[f"one at a time, {labels[order[0]]} first"] = np.stack(path)
    return paths


def _after_one(terms: ContactTerms, contact: int, v: np.ndarray) -> np.ndarray:
    """Compute the velocity after the impact of one contact alone, by the program that solves for all of them.

    In the plane a single contact has one outcome: lam_t / lam_n in [-mu, mu] fixes the slip, which grows with
    it if lam_n > 0.
    """
    alone = terms.replace(active=np.arange(terms.active.shape[0]) == contact)
    if _enumerable(terms):
        return np.asarray(_every_outcome(alone, v)[0])[0]
    return np.asarray(anitescu_potra(alone, jnp.asarray(v))[0])


# A picture calls this a few times: compiling takes all the time, three fifths of it without optimisation.
@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def _every_outcome(terms: ContactTerms, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    return outcomes(terms, v, AnitescuPotra())[0]


def _enumerable(terms: ContactTerms) -> bool:
    return np.shape(terms.J_t)[1] == 1 and int(np.count_nonzero(terms.active)) <= MAX_ENUMERATED

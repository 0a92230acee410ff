"""Samples step by step: by Lemke's method, or by modes that are tabulated again in each step.

Owns the batches of the host, and the choice between machine code and XLA; entry `BySteps`. Page:
docs/methods/impacts-in-space.md.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.impact.laws import routh
from jaxcontact.impact.laws.contact_enumeration import enumerable
from jaxcontact.impact.laws.contact_space import ImpactInfo, residual_limit
from jaxcontact.impact.laws.routh_law import FittedRouth
from jaxcontact.impact.laws.routh_steps import ImpactDraws
from jaxcontact.impact.sampling import lemke_on_host
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.impact.sampling.density import Shaped
from jaxcontact.impact.sampling.draws import Iid, Sobol
from jaxcontact.precision import jit
from jaxcontact.terms import ContactTerms

LANES = 32  # problems that are solved together
LEMKE_MEMORY = 2**30  # bytes at most of the problems that Lemke's method solves together
TRIES = 4  # searches for an outcome of each step, of contacts that cannot be enumerated
CHECKED = 64  # samples, the first ones, of which some steps are searched further
LEMKE_LANES = {1: 1024, 2: 64}  # problems at most, in the plane and in space: a call pays for all of them


class BySteps:
    """One impact to sample by a fitted law; see `sample` for the arguments."""

    def __init__(
        self,
        terms: ContactTerms,
        v: jax.Array,
        law: FittedRouth,
        devices: Sequence[jax.Device],
        *,
        keep_path: bool,
    ) -> None:
        self.terms, self.v, self.law, self.keep_path = terms, v, law, keep_path
        tries = TRIES if searches_steps(terms, v, law, devices) else 0
        if tries:
            law = self.law = law.replace(selection="lemke")  # for what the machine code leaves to XLA
        by_lemke = law.selection == "lemke"
        self.lanes = _lemke_lanes(terms, law) if by_lemke else LANES
        self.on_host = None
        if by_lemke and _runs_on_host(v, law, devices):
            self.on_host = lemke_on_host.LemkeOnHost(terms, v, law.num_directions, tries)

    def resolve(
        self, numbers: np.ndarray, draws: Sobol | Iid | Shaped, device: jax.Device, num_checked: int = 0
    ) -> ImpactSamples:
        """Resolve the samples `numbers` of `draws`, in batches of one size; check the first `num_checked`."""
        law, size = self.law, self.lanes
        terms, draws, step, v, e = jax.device_put(
            (self.terms, draws, law.impulse_step, self.v, law.restitution), device
        )
        start = jnp.broadcast_to(v, (size, v.shape[0]))
        parts = []
        for begin in range(0, len(numbers), size):
            piece = numbers[begin : begin + size]
            orders = _orders(draws, jax.device_put(np.resize(piece, size), device), step, law.max_steps)
            checked = min(max(num_checked - begin, 0), piece.size)
            parts.append(self._resolve_batch(terms, start, orders, e, piece.size, checked))
        v_plus, info, path, searched = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return ImpactSamples(
            v_minus=self.v,
            v_plus=v_plus,
            impulse=info.impulse,
            status=info.status,
            num_iters=info.num_iters,
            energy_ratio=info.energy_ratio,
            residual=info.residual,
            path=path,
            searched_again=searched[:, 0],
            missed=searched[:, 1],
        )

    def resolve_orders(self, impulse_max: np.ndarray, pick: np.ndarray) -> ImpactInfo:
        """Resolve orders (n, N, nc), N s, with picks (n, N); return the info of each, by machine code alone.

        Raises:
            ValueError: no machine code is offered for this impact.
        """
        if self.on_host is None:
            raise ValueError("law: expected one whose steps run in machine code")
        parts = []
        for begin in range(0, len(pick), self.lanes):
            now = slice(begin, begin + self.lanes)
            padded = [np.resize(x[now], (self.lanes, *x.shape[1:])) for x in (impulse_max, pick)]
            orders = ImpactDraws(*jax.device_put(padded, jax.local_devices()[0]))  # as `resolve`: one program
            parts.append(self.on_host.resolve(orders, len(pick[now]), False)[1])
        info: ImpactInfo = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return info

    def _resolve_batch(
        self,
        terms: ContactTerms,
        start: jax.Array,
        orders: ImpactDraws,
        e: float | jax.Array,
        count: int,
        checked: int,
    ) -> PyTree:
        """Resolve the first `count` samples by machine code, if offered; by XLA what that cannot solve.

        Return also (count, 2) how many steps of each are searched further, and how many miss an outcome.
        """
        part: PyTree = None
        searched = np.zeros((count, 2), np.int32)
        if self.on_host is not None:
            *part, numbers = self.on_host.resolve(orders, count, self.keep_path, checked)
            part, searched = tuple(part), numbers.T
            is_solved = part[1].residual <= residual_limit(self.v.dtype)
            if is_solved.all():
                return *part, searched
        if self.keep_path:
            by_xla: PyTree = routh.resolve_many(terms, start, orders, self.law.steps, True, e)
        else:
            by_xla = routh.resolve_until_all_end(terms, start, orders, self.law.steps, e)
        by_xla = jax.tree.map(lambda leaf: np.asarray(leaf)[:count], by_xla)
        if part is None:
            return *by_xla, searched
        merged = jax.tree.map(
            lambda quick, slow: np.where(is_solved.reshape(-1, *[1] * (quick.ndim - 1)), quick, slow),
            part,
            tuple(by_xla),
        )
        return *merged, searched


def searches_steps(
    terms: ContactTerms, v: jax.Array, law: FittedRouth, devices: Sequence[jax.Device] | None
) -> bool:
    """Tell whether "visited" searches each step, for its contacts are too many to enumerate."""
    nc, nt = terms.J_t.shape[:2]
    if law.selection != "visited" or enumerable(nc, nt, law.num_directions):
        return False
    return _runs_on_host(v, law, jax.local_devices() if devices is None else devices)


def _runs_on_host(v: jax.Array, law: FittedRouth, devices: Sequence[jax.Device]) -> bool:
    """Tell whether the steps of this law run in machine code."""
    is_plain = law.restitution is None and not law.turn_polygon
    return is_plain and all(d.platform == "cpu" for d in devices) and lemke_on_host.is_offered(v)


def _lemke_lanes(terms: ContactTerms, law: FittedRouth) -> int:
    """Choose the number of problems that Lemke's method solves together."""
    nc, nt = terms.J_t.shape[:2]
    rows = nc * (law.num_directions + 3)  # of the problem of a step; pivoting stores it three times
    bytes_of_lane = 3 * rows * (rows + 3) * terms.M.dtype.itemsize
    return int(np.clip(LEMKE_MEMORY // bytes_of_lane, 1, LEMKE_LANES[nt]))


@functools.partial(jit, static_argnames="max_steps")
def _orders(draws: Sobol | Iid | Shaped, numbers: jax.Array, step: jax.Array, max_steps: int) -> ImpactDraws:
    """Draw the random numbers of all steps of samples; `step` (nc,) bounds their impulses."""
    nc = step.shape[0]
    drawn = draws.uniform(numbers, 0, max_steps * (nc + 1), step.dtype).T
    drawn = drawn.reshape(numbers.shape[0], max_steps, nc + 1)
    return ImpactDraws(drawn[..., :nc] * step[None, None], drawn[..., nc])

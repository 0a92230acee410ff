"""Models with fewer pairs of shapes, so that the programs of one state have only contacts that can matter.

Entry functions: `only_pairs`, and `only_near` for the pairs that may touch at a configuration.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from jaxcontact import geometry
from jaxcontact._pytree import PyTree
from jaxcontact.geometry.distance_bounds import distance_bounds
from jaxcontact.mechanics.motion_equations import body_frames
from jaxcontact.mechanics.system import Model


def only_pairs(model: Model, is_wanted: np.ndarray) -> Model:
    """Keep the pairs of shapes where `is_wanted` (np,) is true, with the numbers of their contacts.

    For impacts: material and symmetry are left out, which belong to all contacts.
    """
    structure, params = model.structure, model.params
    counts = [
        geometry.num_contacts(structure.dim, structure.shape_table, (pair,)) for pair in structure.pairs
    ]
    contacts = np.flatnonzero(np.repeat(is_wanted, counts))
    pairs = tuple(pair for pair, keeps in zip(structure.pairs, is_wanted, strict=True) if keeps)

    def of_pairs(array: PyTree, rank: int) -> PyTree:
        return array if array is None or np.ndim(array) < rank else array[contacts]

    system = dataclasses.replace(model.system, structure=dataclasses.replace(structure, pairs=pairs))
    return model.replace(
        system=system,
        symmetry=None,
        params=params.replace(
            mu=of_pairs(params.mu, 1),
            margin=of_pairs(params.margin, 1),
            spin_friction=of_pairs(params.spin_friction, 2),
            material=None,
        ),
    )


def only_near(model: Model, q: jax.Array, within: float) -> Model:
    """Keep the pairs of shapes that may be nearer than `within`, m, at a configuration q (nq,).

    Pairs in the plane, and those with a half-space, stay.
    """
    structure, constants = model.structure, model.params.constants
    if structure.dim == 2:
        return model
    positions, orientations = (np.asarray(x) for x in _frames(model, q))
    bounds = distance_bounds(
        structure.bodies, structure.shape_table, structure.pairs, positions, orientations, constants
    )
    margins = 0.0 if model.params.margin is None else float(np.max(model.params.margin, initial=0.0))
    return only_pairs(model, bounds <= within + margins)


_frames = jax.jit(body_frames)

"""The pairs of geoms of a compiled MuJoCo model that may touch, with their friction and margin."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.io.mujoco_package import is_disabled, is_enabled, mujoco_package

if TYPE_CHECKING:
    import mujoco

MOST_GEOMS = 1500  # geoms that may touch, with a million pairs, which take a minute to list
MAX_NAMES = 12  # largest number of names that a message lists


class Pair(NamedTuple):
    """Two geoms that may touch, with the numbers of their contacts.

    Attributes:
        first, second: numbers of the geoms.
        mu: friction, 0 for condim 1.
        margin: distance at which they act as touching, m.
        condim: number of rows of a contact in MuJoCo.
        softness: two numbers of solref, five of solimp.
        spins: torsional and rolling friction, m; 0 for condim 3.
    """

    first: int
    second: int
    mu: float
    margin: float
    condim: int
    softness: tuple[float, ...]
    spins: tuple[float, float]


def candidate_pairs(mj: mujoco.MjModel) -> list[Pair]:
    """List the pairs of geoms that MuJoCo lets touch: explicit pairs, then the pairs that pass its filters.

    The filters are contype and conaffinity, excluded bodies, and geoms of one body or of parent and child.
    Bodies welded together count as one body; the world does not count as a parent. The friction of a pair is
    that of the geom with the higher priority, or the larger friction at equal priority; it is 0 for condim 1.

    Raises:
        ValueError: more geoms than pairs can be listed of.
    """
    if is_disabled(mj, "contact", "constraint"):
        return []
    margins = mj.pair_margin if _margin_rule() in ADDED_GAP else mj.pair_margin - mj.pair_gap
    explicit = [
        Pair(
            int(mj.pair_geom1[k]),
            int(mj.pair_geom2[k]),
            *_overridden(mj, float(mj.pair_friction[k, 0]), int(mj.pair_dim[k]), float(margins[k])),
            _softness(mj, np.concatenate([mj.pair_solref[k], mj.pair_solimp[k]])),
            _spins(mj, mj.pair_friction[k, [0, 2, 3]], int(mj.pair_dim[k])),
        )
        for k in range(mj.npair)
    ]
    explicit_geoms = {frozenset(pair[:2]) for pair in explicit}
    filter_parents = not is_disabled(mj, "filterparent")
    excluded = {(int(s) >> 16, int(s) & 0xFFFF) for s in mj.exclude_signature}
    touching = [geom for geom in range(mj.ngeom) if mj.geom_contype[geom] or mj.geom_conaffinity[geom]]
    if len(touching) > MOST_GEOMS:
        raise ValueError(f"source: expected at most {MOST_GEOMS} geoms that may touch, got {len(touching)}")
    filtered = [
        Pair(a, b, *_contact_parameters(mj, a, b))
        for a, b in itertools.combinations(touching, 2)
        if frozenset((a, b)) not in explicit_geoms and _may_touch(mj, a, b, filter_parents, excluded)
    ]
    return explicit + filtered


def chosen_pairs(mj: mujoco.MjModel, pairs: list[Pair], contacts: object) -> list[Pair]:
    """Select the pairs that the argument `contacts` of `load_mjcf` chooses.

    Raises:
        TypeError: `contacts` is neither a word nor pairs of names.
        ValueError: another word; no geom or body has a name; nothing of two names may touch in the file.
    """
    if isinstance(contacts, str):
        if contacts not in ("all", "world"):
            raise ValueError(f"contacts: expected 'all', 'world' or pairs of names, got {contacts!r}")
        return [pair for pair in pairs if contacts == "all" or any(_on_world(mj, geom) for geom in pair[:2])]
    chosen: dict[Pair, None] = {}
    for first, second in _check_pairs(contacts):
        sides = [(_geoms_of(mj, a), _geoms_of(mj, b)) for a, b in ((first, second), (second, first))]
        matches = [pair for pair in pairs if any(pair.first in a and pair.second in b for a, b in sides)]
        if not matches:
            raise ValueError(
                f"contacts: nothing of {first!r} may touch {second!r} in the file, by contype, conaffinity, "
                "excludes or for one carries the other"
            )
        chosen.update(dict.fromkeys(matches))
    return [pair for pair in pairs if pair in chosen]


def _check_pairs(contacts: PyTree) -> list[tuple[str, str]]:
    rows = list(contacts) if isinstance(contacts, Iterable) else [contacts]
    for row in rows:
        if isinstance(row, str) or not isinstance(row, tuple | list) or len(row) != 2:
            raise TypeError(f"contacts: expected 'all', 'world' or pairs of names, got {row!r}")
        if not all(isinstance(name, str) for name in row):
            raise TypeError(f"contacts: expected names of geoms or bodies, got {row!r}")
    return [(first, second) for first, second in rows]


def _geoms_of(mj: mujoco.MjModel, name: str) -> set[int]:
    """Return the geom with a name, and the geoms of the body with that name."""
    geoms = {geom for geom in range(mj.ngeom) if geom_name(mj, geom) == name}
    bodies = {body for body in range(mj.nbody) if (mj.body(body).name or f"body_{body}") == name}
    if not geoms and not bodies:
        names = [geom_name(mj, geom) for geom in range(mj.ngeom) if mj.geom_contype[geom]]
        listed = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
        raise ValueError(f"contacts: no geom and no body is called {name!r}; geoms are {listed}")
    return geoms | {geom for geom in range(mj.ngeom) if int(mj.geom_bodyid[geom]) in bodies}


def _on_world(mj: mujoco.MjModel, geom: int) -> bool:
    return int(mj.body_weldid[mj.geom_bodyid[geom]]) == 0


def _may_touch(
    mj: mujoco.MjModel, a: int, b: int, filter_parents: bool, excluded: set[tuple[int, int]]
) -> bool:
    if not (mj.geom_contype[a] & mj.geom_conaffinity[b] or mj.geom_contype[b] & mj.geom_conaffinity[a]):
        return False
    bodies = int(mj.geom_bodyid[a]), int(mj.geom_bodyid[b])
    if bodies in excluded or bodies[::-1] in excluded:
        return False
    first, second = (int(mj.body_weldid[body]) for body in bodies)
    if first == second:
        return False
    if filter_parents and first and second:
        parent_bodies = [int(mj.body_weldid[mj.body_parentid[body]]) for body in (first, second)]
        return first != parent_bodies[1] and second != parent_bodies[0]
    return True


def _contact_parameters(mj: mujoco.MjModel, a: int, b: int) -> tuple[PyTree, ...]:
    """Compute friction, margin, condim, softness and spins of a pair of geoms."""
    order = int(mj.geom_priority[a]) - int(mj.geom_priority[b])
    geoms = [a, b] if order == 0 else [a if order > 0 else b]
    dim = max(int(mj.geom_condim[geom]) for geom in geoms)
    frictions = np.max([mj.geom_friction[geom] for geom in geoms], axis=0)
    friction = float(frictions[0])
    margins, gaps = ([float(x[geom]) for geom in (a, b)] for x in (mj.geom_margin, mj.geom_gap))
    rule = _margin_rule()
    margin = sum(margins) if rule in ("sum", "sum less sum") else max(margins)
    if rule not in ADDED_GAP:
        margin -= sum(gaps) if rule == "sum less sum" else max(gaps)
    softness = _softness(mj, _mixed_softness(mj, geoms))
    return *_overridden(mj, friction, dim, margin), softness, _spins(mj, frictions, dim)


def _mixed_softness(mj: mujoco.MjModel, geoms: list[int]) -> np.ndarray:
    """Mix solref and solimp of geoms by solmix; take the smaller numbers of references in direct form."""
    weights = np.maximum([mj.geom_solmix[geom] for geom in geoms], 1e-15)
    share = weights / np.sum(weights)
    references, impedances = (np.array([x[g] for g in geoms]) for x in (mj.geom_solref, mj.geom_solimp))
    is_standard = bool(np.all(references[:, 0] > 0.0))
    reference = share @ references if is_standard else np.min(references, axis=0)
    return np.concatenate([reference, share @ impedances])


def _softness(mj: mujoco.MjModel, numbers: np.ndarray) -> tuple[float, ...]:
    """Return the numbers of solref and solimp, or those of option `override`."""
    if is_enabled(mj, "override"):
        numbers = np.concatenate([mj.opt.o_solref, mj.opt.o_solimp])
    return tuple(float(x) for x in numbers)


def _spins(mj: mujoco.MjModel, frictions: np.ndarray, dim: int) -> tuple[float, float]:
    """Return torsional and rolling friction of three numbers of a pair, or of `override`, by condim."""
    if is_enabled(mj, "override"):
        frictions = mj.opt.o_friction[[0, 2, 3]]
    return float(frictions[1]) * (dim > 3), float(frictions[2]) * (dim > 4)


def _overridden(mj: mujoco.MjModel, friction: float, dim: int, margin: float) -> tuple[float, float, int]:
    """Return friction, margin and condim of a pair; option `override` replaces the first two."""
    if is_enabled(mj, "override"):
        friction, margin = float(mj.opt.o_friction[0]), float(mj.opt.o_margin)
    return (friction if dim > 1 else 0.0), margin, dim


ADDED_GAP = ("sum", "max")  # rules in which the margin at which contacts push excludes the gap


@functools.cache
def _margin_rule() -> str:
    """Find how this MuJoCo combines margins and gaps of two geoms: the rule has changed between versions."""
    mujoco = mujoco_package("load_mjcf")
    mj = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><geom size="1" margin="0.2" gap="0.01"/>'
        '<body><freejoint/><geom size="1" margin="0.3" gap="0.05"/></body></worldbody></mujoco>'
    )
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    rules = {"sum": 0.5, "max": 0.3, "max less max": 0.25, "sum less sum": 0.44}
    margin = float(data.contact.includemargin[0])
    return min(rules, key=lambda rule: abs(rules[rule] - margin))


def kind_of(mj: mujoco.MjModel, geom: int) -> str:
    """Return MuJoCo's word for the shape of a geom."""
    kinds = mujoco_package("load_mjcf").mjtGeom
    return kinds(int(mj.geom_type[geom])).name.removeprefix("mjGEOM_").lower()


def geom_name(mj: mujoco.MjModel, geom: int) -> str:
    """Return the name of a geom, or `geom_` and its number if it has no name in the file."""
    return mj.geom(geom).name or f"geom_{geom}"

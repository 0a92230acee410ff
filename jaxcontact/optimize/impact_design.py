"""Mechanisms and stances whose simultaneous impact has one outcome: entry function `impact_design`.

Owns the report; `design_numbers` has the task, `design_equations` the search, and `impact/` explains the
products of contacts. Pages: docs/methods/order-and-inertia.md, docs/methods/propagative.md.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_choice, check_number
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.front_door import checked
from jaxcontact.impact.analysis.coupling import coupling
from jaxcontact.io import fingerprint
from jaxcontact.io.state_file import StateFile, open_state
from jaxcontact.mechanics.system import Model, Params, State, check_mechanism
from jaxcontact.optimize.design_equations import MET, DesignEquations
from jaxcontact.optimize.design_numbers import DesignTask, find_contacts, slopes_of
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms, contact_terms

DEFAULT_TASK = DesignTask()
FORMAT = "jaxcontact design, 1"


class DesignReport(Record):
    """Numbers and status of the search for a design.

    Attributes:
        cosine_before, cosine: <u, v>_g / (|u|_g |v|_g) of the two normals that are farthest from `target`, at
            the start and of the result.
        target: value of `cosine` to reach, -cos(pi / stages).
        coupling_before, coupling: largest of `jc.impact.coupling(terms).contacts` at the start and of the
            result, of all contacts that touch, of normals alone if `friction` is "none"; for "sliding" the
            largest squared product of the normal of a contact and an impulse of another, as unit vectors.
        gaps: (nc,) of the result, m.
        distance: length of the change, in sizes of numbers: the start of constants, 1 of logarithms of
            factors, 1 rad of angles, of lengths the largest arm of a contact about a joint.
        iterations: of the search for the nearest design.
        evaluations: of the equations with their Jacobian.
        status: UNTERMINATED if the equations are not met within 1e-12, another contact touches, too, or one
            slides the other way at the result; the design is then that of the least products found.
            PENETRATION if another contact comes closer than `clearance`.
    """

    cosine_before: float
    cosine: float
    target: float
    coupling_before: float
    coupling: float
    gaps: np.ndarray
    distance: float
    iterations: int
    evaluations: int
    status: np.uint32


@checked()
def impact_design(
    model: Model, state: State, task: DesignTask = DEFAULT_TASK, *, run: Run = DEFAULT_RUN
) -> tuple[Params, State, DesignReport]:
    """Find the nearest mechanism and stance whose landing on several contacts has one outcome.

    Seeks numbers z near z_0 for which all contacts have gap 0 and, in the metric of M^-1, the rows of each
    contact are orthogonal to those of every other: normals, and tangents with friction. While contacts slide,
    it is enough that the normal of each is orthogonal to the impulses of the others. For n = `stages` > 2
    the cosine of the two normals is -cos(pi / n) instead (Seghete & Murphey, VII). Minimises |(z - z_0) /
    s|^2, s the sizes of numbers, by sequential quadratic programming with derivatives by automatic
    differentiation, then Newton's method with the smallest change onto the equations. If that fails, it
    searches for the least squares of the equations within the bounds from twelve starts, and goes on from
    numbers that meet them; if none does, it returns the least. A host driver.

    Args:
        model: the mechanism and its numbers.
        state: stance to start from; contacts named in `task` need not touch yet.
        task: contacts, conditions, and the numbers that may change.
        run: checkpoint, progress, about. The checkpoint is a file, written after every search: an interrupted
            run, called again alike, resumes and finds the same bits. `progress(searches done, largest number
            of searches, Progress)` is called after each.

    Returns:
        params, state (v and t as given), DesignReport.

    Raises:
        TypeError, ValueError: arguments in another order; fewer than two contacts; contacts, stages or `hold`
            out of range; a name that is neither in `params.constants` nor a body, or both; empty bounds,
            factors that are not positive, a clearance or numbers that are not finite; sliding in space or
            at rest; a checkpoint of another run, with the names of what differs, or a damaged one.

    Status: see DesignReport.
    """
    check_mechanism(model, state)
    check_run(run, unused=("chunk", "devices", "executor"))
    _check(model, state, task)
    equations = DesignEquations(model, state, task)
    before = _touch(contact_terms(model, state), list(equations.contacts))
    cosine_before = _farthest_cosine(before, equations.target)  # raises an error for NaN
    path = None if run.checkpoint is None else Path(run.checkpoint)
    with open_state(path):
        about = {} if path is None else _describe(equations, run)
        found = equations.solve(StateFile(path, about), run.progress)
    z = found.z
    params, placed = equations.apply(z)
    contacts, rest = list(equations.contacts), equations.values(z)[equations.num_equations :]
    gaps = np.empty(model.structure.num_contacts)
    gaps[[*contacts, *equations.others]] = equations.values(z)[equations.num_products :]
    after = contact_terms(model.replace(params=params), placed)
    touching = np.asarray(after.active)
    after = _touch(after, [*contacts, *(c for c in equations.others if touching[c])])
    worst = float(np.max(np.abs(equations.residual(z))))
    is_as_planned = not np.any(touching[equations.others])
    if task.friction == "sliding":
        slips = [
            np.sign(np.asarray(terms.J_t)[contacts, 0] @ np.asarray(state.v)) for terms in (before, after)
        ]
        is_as_planned &= np.array_equal(*slips)
    status = 0 if worst <= MET and is_as_planned else int(Status.UNTERMINATED)  # NaN is UNTERMINATED
    if np.min(rest, initial=np.inf) < equations.clearance - 1e-9:
        status |= int(Status.PENETRATION)
    report = DesignReport(
        cosine_before=cosine_before,
        cosine=_farthest_cosine(after, equations.target), target=equations.target,
        coupling_before=_largest_coupling(before, equations, task.friction, equations.start),
        coupling=_largest_coupling(after, equations, task.friction, z), gaps=gaps,
        distance=equations.distance(z),
        iterations=found.iterations, evaluations=equations.evaluations, status=np.uint32(status),
    )  # fmt: skip
    return params, placed, report


def _describe(equations: DesignEquations, run: Run) -> dict[str, object]:
    """Collect by name what determines the searches: the numbers, and the program of the equations."""
    model, state, z = equations.model, equations.state, jnp.asarray(equations.start)
    limits = {"limits": equations.limits, "clearance": equations.clearance, "target": equations.target}
    return {
        "format": FORMAT,
        "about": run.about,
        **fingerprint.versions(),
        "platform": jax.default_backend(),
        "model": fingerprint.of_numbers(model.params),
        "state": fingerprint.of_numbers(state),
        "task": fingerprint.of_numbers(limits),
        "equations": fingerprint.of_program(slopes_of.trace(equations.numbers, model, state, z)),
    }


def _touch(terms: ContactTerms, contacts: list[int]) -> ContactTerms:
    """Let contacts touch at any gap, also where they overlap."""
    return terms.touching(contacts).replace(phi=jnp.maximum(terms.phi, 0.0))


def _farthest_cosine(terms: ContactTerms, target: float) -> float:
    """Find the cosine of two normals that is farthest from a target."""
    touching = np.flatnonzero(np.asarray(terms.active))
    cosines = np.asarray(coupling(terms).normals)[np.ix_(touching, touching)]
    cosines = cosines[np.triu_indices(len(touching), 1)]
    return float(cosines[np.argmax(np.abs(cosines - target))])


def _largest_coupling(terms: ContactTerms, equations: DesignEquations, friction: str, z: np.ndarray) -> float:
    """Find the largest coupling of two contacts by the impulses that count."""
    if friction == "sliding":
        return float(np.max(equations.values(z)[: equations.num_products] ** 2))
    counted = terms if friction == "all" else terms.replace(mu=jnp.zeros_like(terms.mu))
    return float(np.max(np.asarray(coupling(counted).contacts)))


def _check(model: Model, state: State, task: DesignTask) -> None:
    """Raise ValueError if an argument is out of range."""
    nc, nv = model.structure.num_contacts, model.structure.num_velocities
    for name in task.design:
        is_constant, is_body = name in model.params.constants, name in model.structure.bodies
        if is_constant and is_body:
            raise ValueError(f"design: {name!r} is the name of a constant and of a body")
        if not (is_constant or is_body):
            raise ValueError(
                f"design: no constant and no body {name!r}; there are {sorted(model.params.constants)} "
                f"and {model.structure.bodies}"
            )
    check_choice("all", "sliding", "none")("friction", task.friction)
    check_number("clearance", task.clearance)
    if not all(isinstance(i, int | np.integer) and 0 <= i < nv for i in task.hold):
        raise ValueError(f"hold: expected indices in 0..{nv - 1}, got {task.hold}")
    for name, (lower, upper) in (task.bounds or {}).items():
        if name not in task.design:
            raise ValueError(f"bounds: {name!r} is not in design {task.design}")
        if not lower <= upper:
            raise ValueError(f"bounds: expected lower <= upper for {name!r}, got {(lower, upper)}")
        if name in model.structure.bodies and not lower > 0:
            raise ValueError(f"bounds: expected factors > 0 for body {name!r}, got {(lower, upper)}")
    stages = task.stages
    if isinstance(stages, bool) or not isinstance(stages, int) or stages < 2:
        raise ValueError(f"stages: expected an integer >= 2, got {stages!r}")
    if task.contacts is not None and (
        len({*task.contacts}) != len(task.contacts) or not all(0 <= c < nc for c in task.contacts)
    ):
        raise ValueError(f"contacts: expected different ones of 0..{nc - 1}, got {task.contacts}")
    terms = contact_terms(model, state)
    contacts = find_contacts(terms, task.contacts)
    if len(contacts) < 2:
        where = "that touch at `state`" if task.contacts is None else f"of 0..{nc - 1}"
        raise ValueError(f"contacts: expected two or more {where}, got {contacts}")
    rubs = task.friction != "none" and np.any(np.asarray(terms.mu)[list(contacts)] > 0)
    if stages > 2 and (len(contacts) > 2 or rubs):
        raise ValueError(f"stages: expected 2 with friction or more than two contacts, got {stages}")
    if task.friction == "sliding":
        slips = np.abs(np.asarray(terms.J_t)[list(contacts)] @ np.asarray(state.v))
        if model.structure.dim == 3 or np.min(slips) <= 1e-9:
            raise ValueError("friction: expected contacts that slide, in the plane, for 'sliding'")

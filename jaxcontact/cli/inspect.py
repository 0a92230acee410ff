"""`jaxcontact inspect`: prints the bodies, joints, shapes and actuators that are read from a robot file."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np

from jaxcontact.cli import robot_file
from jaxcontact.cli.catalogue import UsageError
from jaxcontact.geometry import num_contacts
from jaxcontact.mechanics.system import Model
from jaxcontact.mechanics.tree import dofs


def run(options: argparse.Namespace) -> int:
    """Print a description of the robot and of the ignored settings; return 0.

    Raises:
        UsageError: the file cannot be loaded.
    """
    try:
        model = robot_file.load(options.file, options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise UsageError(robot_file.as_flags(str(error))) from None
    if options.mu is not None:
        model = robot_file.with_friction(model, options.mu)
    if options.fall is not None:
        model = robot_file.fallen(model, options.fall)
    print("\n".join(describe(model)))
    return 0


def describe(model: Model) -> Iterator[str]:
    """Yield lines about a robot: its tree, its shapes and pairs, its actuators, its notes."""
    structure, params = model.structure, model.params
    tree = structure.tree
    limited = sum(joint.limited for joint in tree.joints)
    yield (
        f"{'plane' if structure.dim == 2 else 'space'}: {len(tree.parents)} bodies, nq {tree.num_positions}, "
        f"nv {tree.num_velocities}, {float(params.mass.sum()):.4g} kg, {limited} joints limited"
    )
    depth: list[int] = []
    for body, (name, parent) in enumerate(zip(structure.bodies, tree.parents, strict=True)):
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
        joints = [f"{joint.kind} {joint.name}" for joint in tree.joints if joint.body == body]
        mass = float(params.mass[body])
        yield f"{'  ' * depth[body]}{name}: {', '.join(joints) or 'fixed'}, {mass:.4g} kg"
    kinds = Counter(type(shape).__name__ for shape in structure.shapes)
    shapes = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    seen = "" if model.max_contacts is None else f", of which a step sees the nearest {model.max_contacts}"
    yield f"shapes that may touch: {shapes or 'none'}; {structure.num_contacts} candidate contacts{seen}"
    start = 0
    for pair in structure.pairs:
        count = num_contacts(structure.dim, structure.shape_table, (pair,))
        yield f"  {pair[0]} on {pair[1]}: {count}, friction {float(params.mu[start]):.4g}"
        start += count
    yield f"actuators: {', '.join(tree.actuators) or 'none, controls are generalized forces'}"
    yield from (f"  {line}" for line in describe_controls(model))
    if tree.loops:
        ties = Counter(loop.kind for loop in tree.loops)
        yield f"closed loops: {', '.join(f'{count} {kind}' for kind, count in ties.items())}"
    if tree.tendons:
        yield f"tendons: {', '.join(tendon.name for tendon in tree.tendons)}"
    if tree.dry:
        yield f"dry friction: of {len(tree.dry)} velocities"
    if model.notes:
        yield "notes:"
    yield from (f"  {robot_file.as_flags(note)}" for note in model.notes)


def describe_controls(model: Model) -> Iterator[str]:
    """Yield a line for the control of each actuator: the quantity that it sets, its unit and its range."""
    tree, numbers = model.structure.tree, model.params.tree
    owners = [tree.joints[j] for j in dofs(tree).joint]
    for row, name in enumerate(tree.actuators):
        driven = [owners[k] for k in np.flatnonzero(numbers.moment[row])]
        joints = " and ".join(dict.fromkeys(joint.name for joint in driven)) or "nothing"
        gain, (_, by_length, by_speed) = float(numbers.gain[row]), np.asarray(numbers.bias[row])
        length = {"hinge": "rad", "slide": "m"}.get(driven[0].kind if driven else "", "")
        if gain and gain == -by_length:
            kind, unit = "position", length
        elif gain and gain == -by_speed and not by_length:
            kind, unit = "velocity", f"{length}/s" if length else ""
        else:
            kind, unit = "force", {"rad": "N m", "m": "N"}.get(length, "") if gain == 1.0 else ""
        low, high = np.asarray(numbers.control_range[row])
        bounds = f", {low:.4g} .. {high:.4g}" if np.isfinite(low) or np.isfinite(high) else ""
        gears = np.asarray(numbers.moment[row])[np.flatnonzero(numbers.moment[row])]
        gear = f", gear {gears[0]:.4g}" if len(gears) == 1 and gears[0] != 1.0 else ""
        yield f"{name}: {kind} of {joints}{f', {unit}' if unit else ''}{gear}{bounds}"

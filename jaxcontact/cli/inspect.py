"""`jaxcontact inspect`: prints the bodies, joints, shapes and actuators that are read from a robot file."""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator

from jaxcontact.cli.catalogue import UsageError
from jaxcontact.geometry import num_contacts
from jaxcontact.io.mjcf import IgnoredOptionWarning, load_mjcf
from jaxcontact.mechanics.system import Model


def run(options: argparse.Namespace) -> int:
    """Print a description of the robot and of the ignored settings.

    Raises:
        UsageError: the file cannot be loaded.
    """
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", IgnoredOptionWarning)
        try:
            model = load_mjcf(options.file, keyframe=options.keyframe, planar=options.planar)
        except (ValueError, OSError, ImportError) as error:
            raise UsageError(str(error)) from None
    print("\n".join(describe(model)))
    for note in notes:
        print(note.message)
    return 0


def describe(model: Model) -> Iterator[str]:
    """Lines about a robot: its tree, its shapes and pairs, its actuators."""
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
    yield f"shapes that may touch: {shapes or 'none'}; {structure.num_contacts} candidate contacts"
    start = 0
    for pair in structure.pairs:
        count = num_contacts(structure.dim, structure.shape_table, (pair,))
        yield f"  {pair[0]} on {pair[1]}: {count}, friction {float(params.mu[start]):.4g}"
        start += count
    yield f"actuators: {', '.join(tree.actuators) or 'none, controls are generalized forces'}"
    if tree.loops:
        ties = Counter(loop.kind for loop in tree.loops)
        yield f"closed loops: {', '.join(f'{count} {kind}' for kind, count in ties.items())}"
    if tree.tendons:
        yield f"tendons: {', '.join(tendon.name for tendon in tree.tendons)}"
    if tree.dry:
        yield f"dry friction: of {len(tree.dry)} velocities"

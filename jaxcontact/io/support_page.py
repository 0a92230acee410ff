"""The page of all elements that are read, ignored or refused in a file, from the tables of the loader.

python -m jaxcontact.io.support_page > docs/understand/mjcf.md
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from jaxcontact.io.mjcf import load_mjcf
from jaxcontact.io.mjcf_actuators import ACTUATORS, KINDS, TRANSMISSIONS, words
from jaxcontact.io.mjcf_loops import LOOPS
from jaxcontact.io.mjcf_support import ABSENT, SOLVER_OPTIONS, WITHOUT

GEOMS = {
    "plane": 'type="plane" size="1 1 1"',
    "sphere": 'type="sphere" size="1"',
    "capsule": 'type="capsule" size="1 1"',
    "box": 'type="box" size="1 1 1"',
    "cylinder": 'type="cylinder" size="1 1"',
    "ellipsoid": 'type="ellipsoid" size="1 2 3"',
    "mesh": 'type="mesh" mesh="tetrahedron"',
    "hfield": 'type="hfield" hfield="field"',
}
ASSETS = (
    '<mesh name="tetrahedron" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>'
    '<hfield name="field" nrow="2" ncol="2" size="1 1 1 1" elevation="0 0 1 1"/>'
)
AXES = (("slide", "1 0 0"), ("slide", "0 0 1"), ("hinge", "0 1 0"))


def page() -> str:
    """Return the text of the page."""
    return "\n".join(_write_lines()) + "\n"


def _write_lines() -> Iterator[str]:
    yield from (
        "# What is read of an MJCF or URDF file",
        "",
        "This page is generated from the code that decides:",
        "`python -m jaxcontact.io.support_page > docs/understand/mjcf.md`.",
        "MuJoCo parses and compiles the file, so",
        "defaults, classes, frames, includes and every way to write an orientation or an inertia are",
        "MuJoCo's. `jaxcontact inspect FILE` tells of one file what follows.",
        "",
        "## Refused, by the name of the element",
        "",
        'What moves or touches and is not supported is refused; `unsupported="skip"` leaves it out, and',
        "`model.notes` and one warning name it. What only measures or is only seen (sensors, cameras,",
        "lights, sites, tendons that pull at nothing, visual meshes, even missing ones) refuses no file.",
        "",
        "| element | what of it is refused |",
        "|---|---|",
    )
    yield from (f"| {element} | all |" for element in WITHOUT)
    yield "| plugin | those of bodies, geoms and actuators |"
    for element in dict.fromkeys(element for _, element, _ in ABSENT):
        attributes = [attribute for _, name, attribute in ABSENT if name == element]
        if element == "tendon":
            attributes.append(
                "spatial ones that pull over geoms or pulleys, or have frictionloss or armature"
            )
        yield f"| {element} | {', '.join(attributes)} |"
    yield "| file | no joints |"
    yield from ("", "## Joints and actuators", "", "| | read | refused |", "|---|---|---|")
    rows = {"joint": KINDS, "actuator: transmission": TRANSMISSIONS}
    rows["equality"] = LOOPS
    rows |= {f"actuator: {kind}": supported for kind, supported in ACTUATORS.items()}
    for label, supported in rows.items():
        kind = label.rpartition(" ")[2].removesuffix("type").title()
        all_words = words({"Transmission": "Trn", "Equality": "Eq"}.get(kind, kind))
        lacking = [word for word in all_words if word not in supported and word not in ("undefined", "user")]
        yield f"| {label} | {', '.join(supported)} | {', '.join(lacking) or 'none'} |"
    yield from (
        "",
        "A position gain on a free or ball joint is refused. Tendons, ranges of controls, forces,",
        "joints and tendons, frictionloss, gravcomp, armature of joints, tendons and actuators, and",
        "`actuatorgroupdisable` are read, and so is a fluid (density, viscosity, wind) on the box of equal",
        'inertia of a body. With `unsupported="skip"` an actuator keeps its control, without',
        "effect; one with a filter acts at once. Numbers that are infinite, and a negative mass, armature,",
        "stiffness or friction, are refused by the name of their element.",
        "",
        "## Left out, said once by `IgnoredOptionWarning`",
        "",
        f"- option: {', '.join(SOLVER_OPTIONS)}",
        "- solref and solimp of equalities, and of friction, which sticks here and creeps in MuJoCo",
        '  and with `Settings(cone="associated")`',
        "- torsional and rolling friction (condim 4, 6) in the plane; in space `Compliant` alone has them;",
        "  the second tangent's friction of pairs",
        "- motion of mocap bodies with joints or tendons; that of others is `simulate.Inputs(mocap=)`",
        "",
        "A negative damping, which acts as in MuJoCo, and a start out of a joint's range are noted there.",
        "",
        "## Contacts",
        "",
        '`contacts="world"` takes those with the floor and what stands on it, `contacts=[("foot", "floor")]`',
        "those between names of geoms or bodies. A URDF gets `floating=True` and `floor=0.0` where it has",
        "neither. `max_hull_vertices=32` thins the hulls of meshes; `model.notes` says by how much the",
        "surface moved. A `margin` moves the gap by the distance at which MuJoCo starts to push. A surface",
        "that runs (`surfacevel`) does so in every stepper, and so it is with mocap bodies that move.",
        "",
        "Candidate contacts per pair of geoms; a pair with - is refused, where contype, conaffinity, bodies",
        "and excludes let it touch. A mesh is its convex hull, here a tetrahedron.",
    )
    for planar in (False, True):
        kinds = [
            kind for kind in GEOMS if not planar or _candidates("plane", kind, planar) or kind == "plane"
        ]
        yield from ("", f"### {'In the plane (`planar=True`)' if planar else 'In space'}", "")
        yield f"| | {' | '.join(kinds)} |"
        yield "|---" * (len(kinds) + 1) + "|"
        for row, first in enumerate(kinds):
            cells = [str(_candidates(first, second, planar) or "-") for second in kinds[row:]]
            yield f"| {first} | {' | '.join([''] * row + cells)} |"


def _candidates(first: str, second: str, planar: bool) -> int:
    """Count the candidate contacts of a geom of the world with one of a moving body; 0 if refused."""
    joints = "".join(f'<joint type="{kind}" axis="{axis}"/>' for kind, axis in AXES)
    text = (
        f"<mujoco><asset>{ASSETS}</asset><worldbody><geom {GEOMS[first]}/><body>{joints}"
        f'<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><geom {GEOMS[second]}/></body>'
        "</worldbody></mujoco>"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load_mjcf(text, planar=planar).system.structure.num_contacts
        except ValueError:
            return 0


if __name__ == "__main__":
    print(page(), end="")

"""Robots of other pip packages, read as files: nothing of those packages is imported.

`make test-all` puts them into .cache/robots without what they depend on, which is gigabytes.
"""

import importlib.metadata
import sys
import warnings
from pathlib import Path

import mujoco

FOLDER = Path(__file__).parents[1] / ".cache" / "robots"
GYMNASIUM = ("gymnasium", "gymnasium/envs/mujoco/assets")
SUITE = ("dm_control", "dm_control/suite")
MJX = ("mujoco-mjx", "mujoco/mjx/test_data")
PLAYGROUND = ("playground", "mujoco_playground/_src/locomotion")

# Read as they are.
WHOLE = {
    "gymnasium ant": (GYMNASIUM, "ant.xml"),
    "gymnasium half_cheetah": (GYMNASIUM, "half_cheetah.xml"),
    "gymnasium hopper": (GYMNASIUM, "hopper.xml"),
    "gymnasium humanoid": (GYMNASIUM, "humanoid.xml"),
    "gymnasium walker2d": (GYMNASIUM, "walker2d_v5.xml"),
    "gymnasium pusher": (GYMNASIUM, "pusher_v5.xml"),
    "suite acrobot": (SUITE, "acrobot.xml"),
    "suite cartpole": (SUITE, "cartpole.xml"),
    "suite cheetah": (SUITE, "cheetah.xml"),
    "suite finger": (SUITE, "finger.xml"),
    "suite hopper": (SUITE, "hopper.xml"),
    "suite humanoid": (SUITE, "humanoid.xml"),
    "suite humanoid_CMU": (SUITE, "humanoid_CMU.xml"),
    "suite manipulator": (SUITE, "manipulator.xml"),
    "suite stacker": (SUITE, "stacker.xml"),
    "suite pendulum": (SUITE, "pendulum.xml"),
    "suite point_mass": (SUITE, "point_mass.xml"),
    "suite reacher": (SUITE, "reacher.xml"),
    "suite walker": (SUITE, "walker.xml"),
    "gymnasium swimmer": (GYMNASIUM, "swimmer.xml"),
    "suite ball_in_cup": (SUITE, "ball_in_cup.xml"),
    "suite fish": (SUITE, "fish.xml"),
    "mjx convex": (MJX, "convex.xml"),
    "mjx humanoid": (MJX, "humanoid/humanoid.xml"),
    "mjx three humanoids": (MJX, "humanoid/03_humanoids.xml"),
    "mjx shadow hand": (MJX, "shadow_hand/scene_right.xml"),
    "mjx sensors": (MJX, "sensor/model.xml"),
    "playground h1": (PLAYGROUND, "h1/xmls/scene_mjx_feetonly.xml"),
    "playground go1": (PLAYGROUND, "go1/xmls/scene_mjx_feetonly_flat_terrain.xml"),
    "playground spot": (PLAYGROUND, "spot/xmls/scene_mjx_feetonly_flat_terrain.xml"),
    "playground g1": (PLAYGROUND, "g1/xmls/scene_mjx_feetonly_flat_terrain.xml"),
    "playground t1": (PLAYGROUND, "t1/xmls/scene_mjx_feetonly_flat_terrain.xml"),
    "playground op3": (PLAYGROUND, "op3/xmls/scene_mjx_feetonly.xml"),
}
# What a file has that is refused.
REFUSED = {
    "suite dog": ((SUITE, "dog.xml"), "actuator 'lumbar_extend': dyntype 'filter'"),
    "suite quadruped": ((SUITE, "quadruped.xml"), "actuator 'yaw_front_left': dyntype 'filter'"),
    "mjx barkour": ((MJX, "barkour_v0/assets/barkour_v0_mjx.xml"), "no shape here for a hfield"),
}


def path_of(file):
    """Find the path of a file of a package; ImportError names a package that is not installed."""
    (package, folder), name = file
    for found in importlib.metadata.distributions(name=package, path=[str(FOLDER), *sys.path]):
        path = Path(found.locate_file(folder)) / name
        if path.exists():
            return path
    raise ImportError(f"the package {package} is not installed (make test-all puts it into {FOLDER})")


def spec_of(file):
    """Read the MjSpec of a file, without what is only seen: meshes that touch nothing, textures, skins."""
    spec = mujoco.MjSpec.from_file(str(path_of(file)))
    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH and not geom.contype and not geom.conaffinity:
            spec.delete(geom)
    touching = {geom.meshname for geom in spec.geoms}
    for element in [*spec.geoms, *spec.sites, *spec.tendons]:
        element.material = ""
    unused = [mesh for mesh in spec.meshes if mesh.name not in touching]
    for element in [*unused, *spec.textures, *spec.materials, *spec.skins]:
        spec.delete(element)
    return spec


def compiled(file):
    """Compile the mujoco.MjModel of `spec_of` a file."""
    spec = spec_of(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what MuJoCo calls old
        return spec.compile()

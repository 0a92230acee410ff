"""Public robot files, unedited: they load whole, or name what is refused and load without it."""

import warnings

import mujoco
import pytest

import jaxcontact as jc
from benchmarks.robot_files import FOLDER, listed, path_of

pytestmark = pytest.mark.slow
REFUSED = {("safety-gymnasium", "point.xml"): "actuator 'x': transmission 'site'"}
SWIMMERS = {("brax", "swimmer.xml"), ("dm_control", "fish.xml")}  # nothing touches


@pytest.mark.parametrize(("package", "name"), listed())
def test_a_public_file_loads_unedited(package, name):
    path = path_of(package, name, FOLDER)
    if path is None:
        pytest.skip(f"the package {package} is not in {FOLDER} (make test-all puts it there)")
    refused = REFUSED.get((package, path.name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is ignored, and of what MuJoCo calls old
        if refused is not None:
            with pytest.raises(ValueError, match=refused):
                jc.load_mjcf(path)
        model = jc.load_mjcf(path, unsupported="error" if refused is None else "skip")
        mj = mujoco.MjModel.from_xml_path(str(path)) if path.suffix == ".xml" else None
    assert (model.structure.num_contacts == 0) == ((package, path.name) in SWIMMERS)
    assert mj is None or model.structure.num_velocities == mj.nv
    assert any(note.startswith("left out") for note in model.notes) == (refused is not None)

"""Robots that others have made, from files of their packages: mechanics against MuJoCo C, or refused by name."""

import warnings

import mujoco
import numpy as np
import pytest
from helpers import package_robots
from helpers.package_robots import REFUSED, WHOLE
from oracles.mujoco_mechanics import worst_errors

import jaxcontact as jc
from jaxcontact.io.mjcf import IgnoredOptionWarning

pytestmark = pytest.mark.slow
STATES = 100


def loaded(mj):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredOptionWarning)
        return jc.load_mjcf(mj)


@pytest.mark.parametrize("name", WHOLE)
def test_mechanics_equal_those_of_mujoco(name, rng):
    mj = package_robots.compiled(WHOLE[name])
    model = loaded(mj)
    assert model.structure.num_velocities == mj.nv
    assert model.num_controls == mj.nu or mj.nu == 0
    errors = worst_errors(mj, model, rng, STATES)
    print(name, f"nv {mj.nv}", {what: f"{error:.1e}" for what, error in errors.items()})
    # MuJoCo takes a mass centre that is a few nanometres off its body's frame to be there.
    offset = np.max(
        np.abs(mj.body_ipos[mj.body_sameframe == mujoco.mjtSameFrame.mjSAMEFRAME_BODY]), initial=0.0
    )
    assert max(errors.values()) < 1e-10 + 20.0 * offset, errors


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name):
    file, message = REFUSED[name]
    mj = package_robots.compiled(file)
    with pytest.raises(ValueError, match=message) as error:
        loaded(mj)
    assert "\n" not in str(error.value)

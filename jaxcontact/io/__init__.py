"""Files: models and contacts from MuJoCo, friction problems, records of arrays, an atomic writer."""

from jaxcontact.io.friction_files import FrictionProblem as FrictionProblem
from jaxcontact.io.friction_files import load_friction_problem as load_friction_problem
from jaxcontact.io.friction_files import save_friction_problem as save_friction_problem
from jaxcontact.io.mjcf import load_mjcf as load_mjcf
from jaxcontact.io.mujoco_contacts import from_mujoco as from_mujoco
from jaxcontact.io.mujoco_contacts import to_mujoco as to_mujoco

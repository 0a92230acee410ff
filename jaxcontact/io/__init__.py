"""Files: models and contacts from MuJoCo, records of arrays, and an atomic writer for checkpoints."""

from jaxcontact.io.mjcf import load_mjcf as load_mjcf
from jaxcontact.io.mujoco_contacts import from_mujoco as from_mujoco
from jaxcontact.io.mujoco_contacts import to_mujoco as to_mujoco

"""Mechanics of a tree of bodies, and the functions that users call on any mechanism.

This package owns kinematics, dynamics and actuators of a robot, and Jacobians, energies and accelerations.
"""

from jaxcontact.mechanics import joints as joints
from jaxcontact.mechanics.robot import actuator_forces as actuator_forces
from jaxcontact.mechanics.robot import forward_dynamics as forward_dynamics
from jaxcontact.mechanics.robot import forward_kinematics as forward_kinematics
from jaxcontact.mechanics.robot import inverse_dynamics as inverse_dynamics
from jaxcontact.mechanics.robot import kinetic_energy as kinetic_energy
from jaxcontact.mechanics.robot import point_jacobian as point_jacobian
from jaxcontact.mechanics.robot import potential_energy as potential_energy
from jaxcontact.mechanics.robot import retract as retract
from jaxcontact.mechanics.robot import tree_system as tree_system
from jaxcontact.mechanics.robot import velocity_map as velocity_map
from jaxcontact.mechanics.tree import Joint as Joint
from jaxcontact.mechanics.tree import Tree as Tree
from jaxcontact.mechanics.tree import TreeParams as TreeParams

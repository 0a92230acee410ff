"""Ready mechanisms, each at the state its example starts from."""

from jaxcontact.models.affine_3d import affine_3d as affine_3d
from jaxcontact.models.billiard_break import billiard_break as billiard_break
from jaxcontact.models.box_and_wall import box_and_wall as box_and_wall
from jaxcontact.models.box_drop_3d import box_drop_3d as box_drop_3d
from jaxcontact.models.box_on_foundation import box_on_foundation as box_on_foundation
from jaxcontact.models.box_on_incline import box_on_incline as box_on_incline
from jaxcontact.models.compass_gait import compass_gait as compass_gait
from jaxcontact.models.disk_stack import disk_stack as disk_stack
from jaxcontact.models.hopper_1d import hopper_1d as hopper_1d
from jaxcontact.models.pendulum import pendulum_joint as pendulum_joint
from jaxcontact.models.pendulum import pendulum_limit as pendulum_limit
from jaxcontact.models.plate_on_springs import plate_on_springs as plate_on_springs
from jaxcontact.models.pressed_plate import pressed_plate as pressed_plate
from jaxcontact.models.ramone import ramone as ramone
from jaxcontact.models.rocking_block import rocking_block as rocking_block
from jaxcontact.models.sphere_stack import sphere_stack as sphere_stack
from jaxcontact.models.spring_legged import spring_legged_hexapod as spring_legged_hexapod
from jaxcontact.models.spring_legged import spring_legged_hopper as spring_legged_hopper
from jaxcontact.models.swinging_cradle import newtons_cradle as newtons_cradle
from jaxcontact.models.swinging_cradle import swinging_cradle as swinging_cradle
from jaxcontact.models.tossed_cube import tossed_cube as tossed_cube
from jaxcontact.models.trex import trex as trex
from jaxcontact.models.trex import trex_drop as trex_drop
from jaxcontact.models.trex import trex_params as trex_params
from jaxcontact.models.trex import trex_straight as trex_straight

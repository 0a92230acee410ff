"""Ready mechanisms, each at the state its example starts from."""

from jaxcontact.models.box_and_wall import box_and_wall as box_and_wall
from jaxcontact.models.box_drop_3d import box_drop_3d as box_drop_3d
from jaxcontact.models.compass_gait import compass_gait as compass_gait
from jaxcontact.models.disk_stack import disk_stack as disk_stack
from jaxcontact.models.ramone import ramone as ramone
from jaxcontact.models.rocking_block import rocking_block as rocking_block

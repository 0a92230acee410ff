"""Event-selected systems: fast integration through many contacts, and the exact one-sided derivative.

Entry functions: `integrate`, `flow`, `b_derivative`. Page: docs/methods/event-selected.md.
"""

from jaxcontact.ess.b_derivative import BDerivativeInfo as BDerivativeInfo
from jaxcontact.ess.b_derivative import Direction as Direction
from jaxcontact.ess.b_derivative import b_derivative as b_derivative
from jaxcontact.ess.choose_bands import choose_bands as choose_bands
from jaxcontact.ess.from_system import from_system as from_system
from jaxcontact.ess.from_system import pack as pack
from jaxcontact.ess.from_system import unpack as unpack
from jaxcontact.ess.integrate import EventTrajectory as EventTrajectory
from jaxcontact.ess.integrate import flow as flow
from jaxcontact.ess.integrate import integrate as integrate
from jaxcontact.ess.linear_pieces import LinearPieces as LinearPieces
from jaxcontact.ess.linear_pieces import one_sided_jacobian as one_sided_jacobian
from jaxcontact.ess.run import FlowInfo as FlowInfo
from jaxcontact.ess.saltation import ordering_map as ordering_map
from jaxcontact.ess.saltation import rescale_guards as rescale_guards
from jaxcontact.ess.saltation import saltation_matrix as saltation_matrix
from jaxcontact.ess.settings import Settings as Settings
from jaxcontact.mechanics.event_system import EventSystem as EventSystem
from jaxcontact.solvers.ode import DormandPrince as DormandPrince

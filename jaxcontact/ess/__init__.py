"""Event-selected systems: fast integration through many contacts, and the exact one-sided derivative."""

from jaxcontact.ess.integrate import EventTrajectory as EventTrajectory
from jaxcontact.ess.integrate import FlowInfo as FlowInfo
from jaxcontact.ess.integrate import flow as flow
from jaxcontact.ess.integrate import integrate as integrate
from jaxcontact.event_system import EventSystem as EventSystem
from jaxcontact.solvers.ode import DormandPrince as DormandPrince

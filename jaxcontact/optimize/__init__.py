"""Optimisation through contact: `trajectory`, `identify`, `gait`, `robot_gait` and others."""

from jaxcontact.optimize import gaits as gaits
from jaxcontact.optimize.augmented_lagrangian import AugmentedLagrangian as AugmentedLagrangian
from jaxcontact.optimize.consistent_inertia import inertia_numbers as inertia_numbers
from jaxcontact.optimize.consistent_inertia import inertia_of as inertia_of
from jaxcontact.optimize.descent import one_sided_descent as one_sided_descent
from jaxcontact.optimize.identify import IdentifyInfo as IdentifyInfo
from jaxcontact.optimize.identify import identify as identify
from jaxcontact.optimize.impact_design import DesignReport as DesignReport
from jaxcontact.optimize.impact_design import impact_design as impact_design
from jaxcontact.optimize.many_starts import StartsInfo as StartsInfo
from jaxcontact.optimize.many_starts import search_from_starts as search_from_starts
from jaxcontact.optimize.multiple_shooting import Pieces as Pieces
from jaxcontact.optimize.periodic_gait import GaitProblem as GaitProblem
from jaxcontact.optimize.periodic_gait import Launch as Launch
from jaxcontact.optimize.periodic_gait import gait as gait
from jaxcontact.optimize.periodic_gait import gait_outcome as gait_outcome
from jaxcontact.optimize.periodic_gait import gait_outcome_rate as gait_outcome_rate
from jaxcontact.optimize.robot_gait import GaitInfo as GaitInfo
from jaxcontact.optimize.robot_gait import robot_gait as robot_gait
from jaxcontact.optimize.trajectory import OneSided as OneSided
from jaxcontact.optimize.trajectory import Progress as Progress
from jaxcontact.optimize.trajectory import TrajectoryInfo as TrajectoryInfo
from jaxcontact.optimize.trajectory import trajectory as trajectory

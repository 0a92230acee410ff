"""Motion in time: steppers with one protocol, and variational integration with impacts at their time.

Entry functions: `run` and `rollout`. Page: docs/methods/motion.md.
"""

from jaxcontact.simulate.augmented.motion_by_law import augmented_motion as augmented_motion
from jaxcontact.simulate.augmented.path import AugmentedInfo as AugmentedInfo
from jaxcontact.simulate.augmented.path import AugmentedPath as AugmentedPath
from jaxcontact.simulate.augmented.path import PieceKind as PieceKind
from jaxcontact.simulate.compare import momentum_difference as momentum_difference
from jaxcontact.simulate.ensemble import Ensemble as Ensemble
from jaxcontact.simulate.ensemble import ensemble as ensemble
from jaxcontact.simulate.linearize import Linearization as Linearization
from jaxcontact.simulate.motion import Inputs as Inputs
from jaxcontact.simulate.motion import MotionSettings as MotionSettings
from jaxcontact.simulate.projection import ProjectionInfo as ProjectionInfo
from jaxcontact.simulate.stepper import Stepper as Stepper
from jaxcontact.simulate.stepper import StepperInfo as StepperInfo
from jaxcontact.simulate.steppers.compliant import Compliant as Compliant
from jaxcontact.simulate.steppers.event_driven import EventDriven as EventDriven
from jaxcontact.simulate.steppers.time_stepping import TimeStepping as TimeStepping
from jaxcontact.simulate.steppers.variational import Variational as Variational
from jaxcontact.simulate.stepping import rollout as rollout
from jaxcontact.simulate.stepping import run as run
from jaxcontact.simulate.time_augmented import time_augmented as time_augmented
from jaxcontact.simulate.trajectory import Impacts as Impacts
from jaxcontact.simulate.trajectory import Trajectory as Trajectory
from jaxcontact.simulate.variational.integrator import variational as variational

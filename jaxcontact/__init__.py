"""Rigid-body contact that tells which outcomes are possible, how sensitive each is, and its derivative."""

from jaxcontact._lazy import on_first_use

TYPE_CHECKING = False  # type checkers take it for true; `typing` takes a while to load

if TYPE_CHECKING:
    from jaxcontact import compliant as compliant
    from jaxcontact import ess as ess
    from jaxcontact import impact as impact
    from jaxcontact import mechanics as mechanics
    from jaxcontact import models as models
    from jaxcontact import optimize as optimize
    from jaxcontact import simulate as simulate
    from jaxcontact import stability as stability
    from jaxcontact import viz as viz
    from jaxcontact.algebra import rotations as rotations
    from jaxcontact.batching.all_cores import on_all_cores as on_all_cores
    from jaxcontact.geometry import Box as Box
    from jaxcontact.geometry import Capsule as Capsule
    from jaxcontact.geometry import ConvexMesh as ConvexMesh
    from jaxcontact.geometry import Cylinder as Cylinder
    from jaxcontact.geometry import Disc as Disc
    from jaxcontact.geometry import Ellipsoid as Ellipsoid
    from jaxcontact.geometry import HalfSpace as HalfSpace
    from jaxcontact.geometry import Point as Point
    from jaxcontact.geometry import Points as Points
    from jaxcontact.geometry import Polygon as Polygon
    from jaxcontact.geometry import Sphere as Sphere
    from jaxcontact.geometry import hull_faces as hull_faces
    from jaxcontact.io import from_mujoco as from_mujoco
    from jaxcontact.io import load_mjcf as load_mjcf
    from jaxcontact.io import to_mujoco as to_mujoco
    from jaxcontact.mechanics import actuator_forces as actuator_forces
    from jaxcontact.mechanics import forward_dynamics as forward_dynamics
    from jaxcontact.mechanics import forward_kinematics as forward_kinematics
    from jaxcontact.mechanics import inverse_dynamics as inverse_dynamics
    from jaxcontact.mechanics import joints as joints
    from jaxcontact.mechanics import kinetic_energy as kinetic_energy
    from jaxcontact.mechanics import point_jacobian as point_jacobian
    from jaxcontact.mechanics import potential_energy as potential_energy
    from jaxcontact.mechanics.configuration import retract as retract
    from jaxcontact.mechanics.configuration import velocity_map as velocity_map
    from jaxcontact.mechanics.motion_equations import bias as bias
    from jaxcontact.mechanics.motion_equations import mass_matrix as mass_matrix
    from jaxcontact.mechanics.system import Model as Model
    from jaxcontact.mechanics.system import Params as Params
    from jaxcontact.mechanics.system import State as State
    from jaxcontact.mechanics.system import Structure as Structure
    from jaxcontact.mechanics.system import Symmetry as Symmetry
    from jaxcontact.mechanics.system import System as System
    from jaxcontact.mechanics.system import free_poses as free_poses
    from jaxcontact.optimize import gaits as gaits
    from jaxcontact.precision import PrecisionWarning as PrecisionWarning
    from jaxcontact.simulate.linearize import linearize as linearize
    from jaxcontact.simulate.projection import project as project
    from jaxcontact.solvers.lcp import LcpInfo as LcpInfo
    from jaxcontact.solvers.lcp import Lemke as Lemke
    from jaxcontact.solvers.lcp import solve_lcp as solve_lcp
    from jaxcontact.status import FailureError as FailureError
    from jaxcontact.status import Status as Status
    from jaxcontact.status import raise_if_failed as raise_if_failed
    from jaxcontact.terms import ConstraintTerms as ConstraintTerms
    from jaxcontact.terms import ContactTerms as ContactTerms
    from jaxcontact.terms import constraint_terms as constraint_terms
    from jaxcontact.terms import contact_terms as contact_terms
else:
    __getattr__, __dir__, __all__ = on_first_use(
        __name__,
        {
            "": (
                "compliant",
                "ess",
                "impact",
                "mechanics",
                "models",
                "optimize",
                "simulate",
                "stability",
                "viz",
            ),
            "batching.all_cores": ("on_all_cores",),
            "geometry": (
                "Box",
                "Capsule",
                "ConvexMesh",
                "Cylinder",
                "Disc",
                "Ellipsoid",
                "HalfSpace",
                "Point",
                "Points",
                "Polygon",
                "Sphere",
                "hull_faces",
            ),
            "io": ("from_mujoco", "load_mjcf", "to_mujoco"),
            "algebra": ("rotations",),
            "optimize": ("gaits",),
            "mechanics": (
                "joints",
                "actuator_forces",
                "forward_dynamics",
                "forward_kinematics",
                "inverse_dynamics",
                "kinetic_energy",
                "point_jacobian",
                "potential_energy",
            ),
            "precision": ("PrecisionWarning",),
            "simulate.linearize": ("linearize",),
            "simulate.projection": ("project",),
            "solvers.lcp": ("LcpInfo", "Lemke", "solve_lcp"),
            "status": ("FailureError", "Status", "raise_if_failed"),
            "mechanics.configuration": ("retract", "velocity_map"),
            "mechanics.motion_equations": ("bias", "mass_matrix"),
            "mechanics.system": (
                "Model",
                "Params",
                "State",
                "Structure",
                "Symmetry",
                "System",
                "free_poses",
            ),
            "terms": ("ConstraintTerms", "ContactTerms", "constraint_terms", "contact_terms"),
        },
    )

__version__ = "0.1.0"

"""One small valid call of each public function that takes arguments: its arguments by name.

`arguments(path)` returns them; `VALUES` has those that several functions share, `CALLS` those of one.
"""

import functools
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from jaxcontact import compliant, ess, impact, models, optimize, simulate, stability


@functools.cache
def gait():
    return models.compass_gait()


@functools.cache
def block():
    return models.rocking_block()


@functools.cache
def incline():
    return models.box_on_incline(0.25)


@functools.cache
def box():
    return models.box_drop_3d()


@functools.cache
def affine():
    return models.affine_3d()


@functools.cache
def terms():
    return jc.contact_terms(gait(), gait().initial_state())


def start(model):
    return model.initial_state()


LAW = impact.Routh(impulse_step=0.25, max_steps=12)
SHORT = simulate.MotionSettings(stepper=simulate.Compliant(), duration=0.02, dt=0.01)
EPS = ess.Settings(eps=1e-3, max_steps=64, max_events=8)
BIPED = stability.PlanarBiped(alpha=0.2, h=1.0, L1=-0.5, L2=0.5, mu1=0.6, mu2=0.6)
FOLDER = Path(tempfile.gettempdir())
POSE = (jnp.zeros(3), jnp.eye(3))
ARRAY = jnp.ones(3)


@functools.cache
def samples():
    return drawn(start(gait()).v, 32, terms())


def trajectory(model, steps=3):
    state, nc = start(model), model.structure.num_contacts
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (steps + 1, *jnp.shape(x))), state)
    states = states.replace(t=0.1 * jnp.arange(steps + 1.0))
    return simulate.Trajectory(
        states=states, contacts=jnp.zeros((steps + 1, nc), bool), impacts=None,
        impulse=jnp.zeros((steps, nc, model.structure.dim)), status=jnp.zeros(steps, jnp.uint32),
    )  # fmt: skip


def event_trajectory(n=3, m=3):
    return ess.EventTrajectory(
        t=jnp.arange(4.0), x=jnp.ones((4, n)), crossed=jnp.zeros((4, m), bool), order=jnp.full(2, -1),
        event_rows=jnp.full(2, -1), num_rows=jnp.int32(4), num_events=jnp.int32(0), grazed=jnp.zeros(m, bool),
        residual=jnp.zeros(()), status=jnp.uint32(0),
    )  # fmt: skip


def augmented_path():
    return simulate.AugmentedPath(
        s=jnp.arange(4.0), t=jnp.arange(4.0), q=jnp.ones((4, 3)), v=jnp.ones((4, 3)),
        lam=jnp.zeros((3, 2, 2)), t_rate=jnp.ones(3), kind=jnp.zeros(3, jnp.int32),
        impact=jnp.zeros(3, jnp.int32), collision=jnp.zeros(3, bool),
    )  # fmt: skip


def coverage():
    return impact.coverage(samples(), terms=terms())


def chart():
    return stability.Chart(
        names=("d", "mu1"), x=np.array([0.5, 1.0]), y=np.array([0.5, 1.0]), region=np.zeros((2, 2), int),
        margin=np.zeros((2, 2)), diverging=np.zeros((2, 2), int), contradictions=0,
    )  # fmt: skip


@functools.cache
def certificate():
    return stability.certify(BIPED)


@functools.cache
def candidates():
    model = gait()
    structure, params, q = model.structure, model.params, start(model).q
    positions, orientations = jc.forward_kinematics(model, q)
    return {
        "dim": structure.dim, "bodies": structure.bodies, "shapes": structure.shape_table,
        "pairs": structure.pairs, "positions": positions, "orientations": orientations,
        "constants": params.constants, "near_pairs": None,
    }  # fmt: skip


@functools.cache
def hopper_gait():
    return optimize.gaits.hopper()


def problem():
    model, state = incline(), start(incline())
    return compliant.Problem(
        M=jc.mass_matrix(model, state.q), v=state.v, f=jc.bias(model, state), dt=0.01,
        terms=jc.constraint_terms(model, state), material=compliant.Material(stiffness=1e4, damping=10.0),
    )  # fmt: skip


def mirrored():
    model = models.disk_stack()
    in_stack, v = jc.contact_terms(model, start(model)), start(model).v
    return {"samples": drawn(v, 8, in_stack), "terms": in_stack, "symmetry": model.symmetry}


def drawn(v, count, of_terms):
    """Samples of multiples of a velocity."""
    nc, nt = of_terms.J_t.shape[:2]
    return impact.ImpactSamples(
        v_minus=v, v_plus=jnp.stack([(1 + k / count) * v for k in range(count)]),
        impulse=jnp.ones((count, nc, 1 + nt)), status=jnp.zeros(count, jnp.uint32),
        num_iters=jnp.ones(count, jnp.int32), energy_ratio=jnp.ones(count), residual=jnp.zeros(count),
        independent=True,
    )  # fmt: skip


def axes():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def solid_axes():
    from matplotlib.figure import Figure

    return Figure().add_subplot(projection="3d")


def corner():
    from helpers.ess_systems import CORNER as SYSTEM
    from helpers.ess_systems import corner_params

    params = jax.tree.map(jnp.asarray, corner_params(np.random.default_rng(0), 2, 2))
    return jc.Model(system=SYSTEM, params=params)


def mujoco_pair():
    import mujoco

    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><geom name='floor' type='plane' size='5 5 1'/><body pos='0 0 0.1'><freejoint/>"
        "<geom type='sphere' size='0.1'/></body></worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return {"mj_model": model, "mj_data": data}


def friction_file(tmp=FOLDER):
    path = tmp / "jaxcontact_valid_call.npz"
    jc.io.save_friction_problem(path, np.eye(3), -np.ones(3), 0.5)
    return path


@functools.cache
def sample_folder():
    folder = tempfile.mkdtemp()
    impact.sample(terms(), start(gait()).v, LAW, num_samples=8, run=jc.Run(checkpoint=folder))
    return folder


def distance_residuals(params, own, data):
    """Residuals of one parameter and one number of each motion."""
    return data * jnp.array([[1.0, 2.0, 3.0]]) - params["a"] * jnp.array([[1.0, 1.0, 2.0]]) - own


def distance_score(params, data):
    return (params["a"] - data[:, 0]) ** 2


def quadratic_search(controls):
    return optimize.trajectory(lambda c: jnp.sum(c**2), controls, optimizer=adam(), num_steps=1)


def launch_params():
    problem, params, free = hopper_gait()
    return {"problem": problem, "params": params, "free0": free}


# The values of arguments by name; those of rooms where a name means something else are in CALLS.
VALUES = {
    "model": gait,
    "state": lambda: start(gait()),
    "terms": terms,
    "v": lambda: start(gait()).v,
    "q": lambda: start(gait()).q,
    "law": lambda: LAW,
    "key": lambda: jnp.array([0, 7], jnp.uint32),
    "body": lambda: BIPED,
    "samples": samples,
    "impulse_max": lambda: jnp.full(2, 0.2),
    "num_samples": lambda: 8,
    "dt": lambda: 0.01,
    "quaternion": lambda: jnp.array([1.0, 0.0, 0.0, 0.0]),
    "rotation_vector": lambda: 0.5 * ARRAY,
}


def mechanism(model, **more):
    return lambda: {"model": model(), "state": start(model()), **{n: f() for n, f in more.items()}}


def event_run(**more):
    return lambda: {
        "model": affine(), "x0": start(affine()), "t0": 0.0, "t1": 0.1, "settings": EPS,
        **{n: f() for n, f in more.items()},
    }  # fmt: skip


def constant(**values):
    return lambda: values


CORNER = jnp.zeros(3)
UP = jnp.array([0.0, 0.0, 1.0])
JOINT = {"a": POSE, "at_a": ARRAY, "b": POSE, "at_b": ARRAY}

CALLS = {
    "actuator_forces": constant(controls=jnp.zeros(4)),
    "contacts": constant(impulse=jnp.ones((2, 2)), dt=0.01),
    "fixed_iterations": constant(function=jnp.sin),
    "forward_dynamics": constant(tau=jnp.zeros(4)),
    "free_poses": lambda: {"structure": block().structure, "q": start(block()).q, "params": block().params},
    "from_mujoco": mujoco_pair,
    "hull_faces": constant(vertices=np.concatenate([np.eye(3), -np.eye(3)])),
    "inverse_dynamics": constant(acceleration=jnp.zeros(4)),
    "linearize": mechanism(
        incline, controls=lambda: jnp.zeros(6), stepper=lambda: simulate.Compliant(), dt=lambda: 0.01
    ),
    "load_mjcf": constant(source=str(Path(models.__file__).parent / "mjcf" / "hopper.xml"), planar=True),
    "on_all_cores": constant(function=jnp.sin),
    "place_on_ground": mechanism(box),
    "point_jacobian": constant(body=0, at=jnp.zeros(2)),
    "progress_line": constant(also=str),
    "project": mechanism(box),
    "raise_if_failed": lambda: {"info": jc.LcpInfo(status=jnp.uint32(0), residual=0.0, num_iters=0)},
    "retract": constant(delta=jnp.zeros(4)),
    "simd": constant(function=jnp.sin),
    "solve_friction": constant(W=jnp.eye(3), q=-ARRAY, mu=0.5),
    "solve_lcp": constant(W=jnp.eye(3), w=-ARRAY),
    "to_mujoco": constant(v_plus=jnp.ones(6)),
    "compliant.estimate_forces": lambda: {
        "model": incline(), "states": trajectory(incline(), 1).states, "tau": jnp.zeros((1, 6)), "dt": 0.01},
    "compliant.foundation_stiffness": constant(modulus=1e7, area=0.1, depth=0.2),
    "compliant.rollout": mechanism(incline, controls=lambda: jnp.zeros((2, 6)), dt=lambda: 0.01),
    "compliant.solve": lambda: {"problem": problem()},
    "compliant.stiff_material": constant(mass=1.0),
    "compliant.smoothed": lambda: {"model": incline(), "smoothing": 0.1},
    "compliant.step": mechanism(incline, controls=lambda: jnp.zeros(6), dt=lambda: 0.01),
    "ess.b_derivative": event_run(direction=lambda: ARRAY),
    "ess.choose_bands": event_run(settings=lambda: EPS.replace(tol=1e-3)),
    "ess.flow": event_run(),
    "ess.from_system": lambda: {"model": models.plate_on_springs()},
    "ess.integrate": event_run(),
    "ess.one_sided_jacobian": event_run(),
    "ess.ordering_map": lambda: {"model": affine(), "x_corner": CORNER, "order": (0, 1, 2)},
    "ess.pack": lambda: {"state": start(gait())},
    "ess.rescale_guards": lambda: {"model": affine(), "states": CORNER[None], "eps": 1e-3},
    "ess.saltation_matrix": lambda: {
        "model": affine(), "x": CORNER, "guard": 0, "crossed": jnp.zeros(3, bool)},
    "ess.unpack": constant(x=jnp.zeros(8), t=0.0),
    "geometry.candidates": candidates,
    "geometry.check_constants": lambda: {
        "dim": 2, "shapes": gait().structure.shapes, "constants": gait().params.constants},
    "geometry.check_pair": lambda: dict(zip("ab", [s for s in block().structure.shapes][:2])),
    "geometry.check_shape": lambda: {"dim": 2, "shape": block().structure.shapes[0]},
    "geometry.contact_bodies": candidates,
    "geometry.num_contacts": candidates,
    "geometry.products": constant(matrices=jnp.ones((2, 3, 3)), vectors=jnp.ones((2, 3))),
    "geometry.rows": constant(array=jnp.ones((2, 3)), index=(0, 1)),
    "geometry.tangent_frame": constant(normal=UP),
    "impact.approximate_set": constant(tolerance=0.1),
    "impact.bounds": constant(direction=jnp.ones(4), num_starts=4, num_iters=4),
    "impact.chain": constant(stiffness=1.0),
    "impact.contains": lambda: {"v_measured": start(gait()).v, "terms": terms()},
    "impact.coverage": lambda: {"terms": terms()},
    "impact.dense_sampling": constant(lipschitz=1.0, side=1.0, num_dimensions=2, num_samples=64, tolerance=0.5),
    "impact.extreme": constant(direction=jnp.ones(4), num_starts=4, num_iters=4),
    "impact.indeterminacy": constant(orders=((0, 1), (1, 0))),
    "impact.kelvin_voigt": lambda: {
        "model": block(), "state": start(block()).replace(v=jnp.array([0.0, -1.0, 0.0])), "stiffness": 1e4,
        "damping_ratio": 0.5, "solver": impact.StiffSolver(max_steps=50)},
    "impact.load_samples": lambda: {"directory": sample_folder()},
    "impact.mirrored": mirrored,
    "impact.net_bound": constant(tolerance=0.5, num_tested=8),
    "impact.invariant_subspace": lambda: {"samples": samples()},
    "impact.newton": constant(restitution=0.5),
    "impact.outcomes": constant(law=impact.AnitescuPotra()),
    "impact.paradox": constant(v=jnp.zeros(4), f=jnp.ones(4)),
    "impact.poisson": constant(restitution=0.5),
    "impact.reset_map": constant(M=jnp.eye(4), u=jnp.ones(4)),
    "impact.resolve": constant(impulse_max=jnp.full((3, 2), 0.2), pick=jnp.zeros(3)),
    "impact.routh_path": constant(rates=jnp.ones(2)),
    "impact.sequential": constant(order=(0, 1), max_impacts=4),
    "impact.time_bound": constant(speed=1.0, forces=jnp.ones(4)),
    "io.load_friction_problem": lambda: {"path": friction_file()},
    "io.save_friction_problem": lambda: {
        "path": FOLDER / "jaxcontact_valid_call.npz", "W": np.eye(3), "q": -np.ones(3), "mu": 0.5},
    "joints.ball": constant(**JOINT),
    "joints.distance": constant(**JOINT, length=jnp.ones(())),
    "joints.hinge": constant(**JOINT, axis_a=UP, axis_b=UP),
    "joints.point": constant(pose=POSE, at=ARRAY),
    "joints.weld": constant(**JOINT),
    "mechanics.tree_system": lambda: {"structure": models.hopper().structure},
    "models.billiard_break": constant(theta=1.5),
    "models.newtons_cradle": constant(masses=(1.0, 2.0)),
    "models.swinging_cradle": constant(masses=(1.0, 2.0)),
    "models.trex_drop": lambda: {"params": models.trex().params, "q": start(models.trex()).q},
    "models.trex_params": lambda: {"constants": models.trex().params.constants},
    "models.trex_straight": lambda: {"params": models.trex().params, "theta": jnp.float_(0.1)},
    "optimize.gait": lambda: {**launch_params(), "speed": 1.0, "num_steps": 1},
    "optimize.gait_outcome": lambda: {**free_gait(), "speed": 1.0},
    "optimize.gait_outcome_rate": lambda: {**free_gait(), "direction": free_gait()["free"], "speed": 1.0},
    "optimize.identify": lambda: {
        "score": distance_score, "params0": {"a": jnp.ones(())}, "data": jnp.ones((4, 1)), "max_steps": 2},
    "optimize.identify_motions": lambda: {
        "residuals": distance_residuals, "params0": {"a": jnp.ones(())}, "per_motion0": jnp.zeros((4, 1)),
        "data": jnp.ones((4, 3)), "max_steps": 2},
    "move_surfaces": lambda: {"velocities": {incline().structure.shapes[0].name: jnp.ones(3)}, "model": incline()},
    "optimize.over_outcomes": lambda: {"cost": lambda x, key: jnp.sum(x), "outcomes": 2},
    "optimize.risk_of": constant(costs=jnp.ones(4)),
    "optimize.track": lambda: {
        "model": incline(), "stepper": simulate.Compliant(), "state_cost": jnp.ones(12), "control_cost": jnp.ones(6),
        "trajectory": simulate.rollout(
            incline(), start(incline()), jnp.zeros((2, 6)), stepper=simulate.Compliant(), dt=0.01)},
    "optimize.pose_residuals": constant(
        predicted=jnp.ones((2, 7)), measured=jnp.ones((2, 7)), position_noise=1.0, angle_noise=1.0),
    "optimize.pose_score": constant(
        predicted=jnp.ones((2, 7)), measured=jnp.ones((2, 7)), position_noise=1.0, angle_noise=1.0),
    "optimize.impact_design": constant(),
    "optimize.one_sided_descent": constant(
        rate=lambda d: float(np.sum(d)), piece=lambda d: np.ones(2), gradient=np.ones(2)),
    "optimize.search_from_starts": lambda: {"search": quadratic_search, "starts": jnp.ones((2, 2))},
    "optimize.inertia_of": lambda: {"numbers": jnp.zeros(10)},
    "optimize.inertia_numbers": lambda: {"mass": 1.0, "com": jnp.zeros(3), "inertia": jnp.eye(3)},
    "optimize.inertias_of_bodies": lambda: {"model": jc.models.quadruped(), "bodies": ["trunk"]},
    "optimize.with_inertias": lambda: {"model": jc.models.quadruped(), "numbers": {"trunk": jnp.zeros(10)}},
    "optimize.robot_gait": lambda: {"model": block(), "speed": 0.5, "num_steps": 1},  # refused: no actuators
    "optimize.trajectory": lambda: {
        "objective": lambda c: jnp.sum(c**2), "controls0": jnp.ones(2), "optimizer": adam(), "num_steps": 1},
    "peers.mujoco_outcome": constant(model_name="rocking_block"),
    "rotations.planar_matrix": constant(angle=jnp.ones(())),
    "rotations.quaternion_product": constant(a=jnp.ones(4), b=jnp.ones(4)),
    "rotations.vee": constant(skew=jnp.ones((3, 3))),
    "simulate.ensemble": mechanism(incline, motion=lambda: SHORT, num_worlds=lambda: 2),
    "simulate.momentum_difference": lambda: {
        "model": block(), "first": trajectory(block()), "second": trajectory(block())},
    "simulate.rollout": mechanism(
        incline, stepper=lambda: simulate.Compliant(), controls=lambda: jnp.zeros((2, 6)), dt=lambda: 0.01),
    "simulate.run": mechanism(incline, motion=lambda: SHORT),
    "simulate.augmented_motion": mechanism(block, length=lambda: 0.5, max_pieces=lambda: 4),
    "simulate.time_augmented": mechanism(block, length=lambda: 0.5, max_pieces=lambda: 4),
    "simulate.variational": mechanism(
        block, stepper=lambda: simulate.Variational(max_impacts=4), duration=lambda: 0.02, dt=lambda: 0.01),
    "stability.certified_end": constant(make_body=lambda x: BIPED.replace(mu1=x, mu2=x), inside=0.6, outside=0.01, tolerance=0.3),
    "stability.chart": constant(
        make_body=lambda d, mu: BIPED.replace(mu1=mu), grid={"d": [0.5, 1.0], "mu": [0.5, 1.0]}, num_samples=2),
    "stability.check": lambda: {"certificate": certificate()},
    "stability.excursion_bounds": lambda: {"certificate": certificate()},
    "stability.impact": constant(v=jnp.ones(3), contact=0),
    "stability.margin_gradient": constant(names=("h",)),
    "stability.motion_path": lambda: {"start": first_motion(), "num_events": 2},
    "terms.kept_by_body": lambda: {"system": block().system},
    "terms.nearest_terms": constant(max_contacts=1),
    "terms.touch_tolerance": constant(lengths=ARRAY),
    "viz.animate": lambda: {
        "trajectory": trajectory(gait()), "model": gait(), "path": FOLDER / "jaxcontact_valid_call.html"},
    "viz.animate_gait": lambda: {
        "trajectory": event_trajectory(4, 3), "params": hopper_gait()[1], "frames": 2,
        "path": FOLDER / "jaxcontact_valid_call.gif"},
    "viz.contact_intervals": lambda: {"trajectory": event_trajectory()},
    "viz.draw_bodies": lambda: {"axes": solid_axes(), "model": box(), "state": start(box())},
    "viz.draw_mechanism": lambda: {"axes": axes()},
    "viz.plot_corner": lambda: {
        "model": corner(), "x_corner": jnp.zeros(2), "eps": 1e-3, "radius": 0.05, "duration": 0.1, "starts": 2},
    "viz.plot_coverage": lambda: {"found": coverage()},
    "viz.plot_cradle_energy": constant(
        single={"one": (np.arange(3.0), np.ones((3, 2)))}, repeated={"one": (np.arange(3.0), np.ones((3, 2)))}),
    "viz.plot_curves": constant(curves={"one": (np.arange(3.0), np.ones(3))}, xlabel="x", ylabel="y"),
    "viz.plot_gait": lambda: {"trajectories": {"one": event_trajectory(4, 3)}},
    "viz.plot_order": constant(widths=np.array([0.1, 0.2]), errors=np.array([0.1, 0.2])),
    "viz.plot_order_difference": constant(curves={"one": (np.arange(3.0), np.ones(3))}),
    "viz.plot_paradox": constant(x=np.arange(3.0), y=np.arange(2.0), kind=np.zeros((2, 3), int)),
    "viz.plot_path": lambda: {"path": augmented_path(), "coordinate": 0},
    "viz.plot_phase": lambda: {"paths": {"one": augmented_path()}, "gap": lambda q, v: (q[:, 1], v[:, 1])},
    "viz.plot_pressure": lambda: {
        "model": models.box_on_foundation(4), "state": start(models.box_on_foundation(4)),
        "lam": jnp.ones(4), "area": 0.1},
    "viz.plot_restitution_sets": lambda: {"sets": {0.5: samples()}},
    "viz.plot_snapshots": lambda: {"path": augmented_path(), "outline": np.ones((4, 2)), "rows": {"first": 0}},
    "viz.plot_spatial_impact": lambda: spatial_samples(),
    "viz.plot_stability_chart": lambda: {"chart": chart()},
    "viz.plot_trajectory": lambda: {"trajectory": event_trajectory()},
}  # fmt: skip


def floor_structure():
    structure = block().structure
    return {"dim": 2, "bodies": structure.bodies, "num_positions": 3, "shapes": structure.shapes,
            "pairs": structure.pairs}  # fmt: skip


# Records of settings, which check themselves: the fields that they need, and some of the others.
RECORDS = {
    "compliant.FrictionSpring": constant(stiffness=1.0, damping=1.0),
    "compliant.Hertz": constant(modulus=1.0, radius=1.0),
    "compliant.HuntCrossley": constant(coefficient=1.0, exponent=1.0),
    "compliant.Material": constant(stiffness=1.0, damping=1.0, friction=0.5, friction_damping=1.0),
    "compliant.Newton": constant(max_iters=5),
    "compliant.Settings": constant(max_contacts=2),
    "compliant.Smooth": constant(stiffness=1.0, kappa=1.0),
    "CoulombNewton": constant(max_iters=5, tolerance=1e-6),
    "Lemke": constant(max_pivots=5, tolerance=1e-6),
    "ess.DormandPrince": constant(rtol=1e-6, atol=1e-6, dt=0.1, longest=1.0),
    "ess.EventSystem": lambda: {"field": affine().system.field, "guards": affine().system.guards},
    "ess.Settings": constant(eps=0.1, tol=0.1, corner_tol=0.1),
    "impact.AnitescuPotra": constant(num_directions=8),
    "impact.Sequential": constant(order=(0, 1)),
    "impact.Newton": constant(restitution=0.5),
    "impact.Poisson": constant(restitution=0.5),
    "impact.Energetic": constant(restitution=0.5, rates=1.0),
    "impact.Chain": constant(stiffness=1.0, restitution=0.5),
    "impact.Propagative": constant(restitution=0.5),
    "impact.Plastic": constant(),
    "impact.ImpactEnd": constant(stop_speed=1e-6),
    "impact.StiffSolver": constant(atol=1e-12),
    "impact.Routh": constant(impulse_step=0.2, max_steps=3, restitution=0.5),
    "impact.RouthStep": constant(impulse_max=1.0),
    "optimize.RandomStride": constant(
        stride=lambda free, params, speed, key: (jnp.sum(free), jnp.zeros(1)), outcomes=2
    ),
    "optimize.SearchSettings": constant(max_steps=3, tol=1e-3, largest=2.0, curvature_step=1e-3),
    "optimize.AugmentedLagrangian": constant(slope=1e-3, penalty=1.0),
    "optimize.PiecewiseNewton": lambda: {"pieces": lambda z: None, "radius": 0.5},
    "optimize.OneSided": lambda: {"optimizer": adam(), "rate": lambda z, d: jnp.sum(d)},
    "simulate.Compliant": constant(),
    "simulate.EventDriven": constant(rtol=1e-8),
    "simulate.MotionSettings": lambda: {"stepper": simulate.Compliant(), "duration": 0.02, "dt": 0.01},
    "simulate.TimeStepping": constant(),
    "simulate.Variational": constant(restitution=0.5, zeno=0.1),
    "stability.PlanarBiped": constant(alpha=0.2, h=1.0, L1=-0.5, L2=0.5, mu1=0.6, mu2=0.6, e1=0.0, e2=0.0, F=1.0, T=0.0),
    "Run": constant(chunk=8),
    "Params": lambda: vars(gait().params),
    "Structure": floor_structure,
    "Symmetry": constant(velocity=np.eye(2), contacts=(1, 0)),
    "Point": constant(name="p", body="a", at="at"),
    "Points": constant(name="p", body="a", at="at", count=2),
    "Sphere": constant(name="p", body="a", radius="r"),
    "Capsule": constant(name="p", body="a", radius="r", ends="e"),
    "Cylinder": constant(name="p", body="a", radius="r", half_length="e"),
    "Disc": constant(name="p", body="a", radius="r"),
    "Box": constant(name="p", body="a", size="s", corners=(0, 1)),
    "Ellipsoid": constant(name="p", body="a", semi_axes="s"),
    "Polygon": constant(name="p", body="a", vertices="s", count=3),
    "ConvexMesh": constant(name="p", body="a", vertices="s", count=4),
    "HalfSpace": constant(name="p", normal=(0.0, 1.0)),
    "mechanics.Joint": constant(name="j", kind="hinge", body=0),
}  # fmt: skip


def spatial_samples():
    model = box()
    in_space, v = jc.contact_terms(model, start(model)), start(model).v
    return {"samples": drawn(v, 8, in_space), "terms": in_space}


def first_motion():
    from jaxcontact.stability.motion import Motion

    return Motion(
        v=jnp.ones(3), gaps=jnp.ones(2), closed=jnp.zeros(2, bool), sticks=jnp.zeros(2, bool),
        log_size=jnp.zeros(()), events=jnp.int32(0), outcome=jnp.int32(0),
    )  # fmt: skip


def adam():
    import optax

    return optax.adam(0.1)


def free_gait():
    values = launch_params()
    return {"problem": values["problem"], "params": values["params"], "free": values["free0"]}


def arguments(path, signature):
    """Return the arguments of the valid call of a public function, by name."""
    values = CALLS.get(path, RECORDS.get(path, dict))()
    for name, parameter in signature.parameters.items():
        if name not in values and parameter.default is parameter.empty:
            if name not in VALUES:
                raise KeyError(f"{path}: no valid value of {name}")
            values[name] = VALUES[name]()
    return {name: values[name] for name in signature.parameters if name in values}

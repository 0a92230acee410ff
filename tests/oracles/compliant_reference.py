"""Plain NumPy and SciPy answers for compliant mechanics: nothing here imports the package."""

import numpy as np
import scipy.linalg
from scipy.integrate import solve_ivp
from scipy.optimize import fsolve

GRAVITY = 9.81


def implicit_euler(k, b, m, h, x, v, steps):
    """x and v (steps + 1,) of m x'' + b x' + k x = 0; Drumwright, eqs (13)-(14)."""
    path = [(x, v)]
    for _ in range(steps):
        v = (v - h * k / m * x) / (1.0 + h * b / m + h * h * k / m)
        x = x + h * v
        path.append((x, v))
    return np.array(path).T


def explicit_euler_matrix(k, b, m, h):
    """Eq (10)."""
    return np.array([[1.0, h], [-h * k / m, 1.0 - h * b / m]])


def semi_implicit_euler_matrix(k, b, m, h):
    """Eqs (11)-(12): v first, with its own damping implicit."""
    share = 1.0 / (1.0 + h * b / m)
    return np.array([[1.0 - h * h * k / m * share, h * share], [-h * k / m * share, share]])


def rotation(q):
    w, x, y, z = q / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def quaternion_rate(q, w):
    a, x, y, z = q
    p, r, s = w
    return 0.5 * np.array(
        [-x * p - y * r - z * s, a * p - z * r + y * s, z * p + a * r - x * s, -y * p + x * r + a * s]
    )


# --- the cube on an elastic foundation


def elements(number):
    """Bottom points (number, 3) of the unit cube over the middles of the elements."""
    side = round(number**0.5)
    middle = (np.arange(side) + 0.5) / side - 0.5
    return np.array([[x, y, -0.5] for x in middle for y in middle])


def foundation_rate(number, modulus, load):
    """The ODE of the cube and its start: position, quaternion, velocity, angular velocity in body axes."""
    points, stiffness, mass, inertia = elements(number), modulus / number, 8.0, 8.0 / 6.0

    def rate(t, s):
        turn, v, w = rotation(s[3:7]), s[7:10], s[10:]
        arm = np.cross(points, turn[2])
        force = np.maximum(0.0, -stiffness * (s[2] + points @ turn[2]) - (v[2] + arm @ w))
        at = 0.5 * np.array([np.cos(10 * t), np.sin(10 * t), 1.0])
        torque = np.cross(at, turn.T @ np.array([0.0, 0.0, -load])) + force @ arm
        lift = (force.sum() - load) / mass - GRAVITY
        return np.concatenate([v, quaternion_rate(s[3:7], w), [0.0, 0.0, lift], torque / inertia])

    start = np.zeros(13)
    start[[2, 3]] = 0.5, 1.0
    return rate, start


def foundation_ode(number, modulus, load, time=1.0, rtol=1e-7):
    """Depth of the centre (m) and the quaternion's x and y after `time`, by an explicit method of order 8."""
    rate, start = foundation_rate(number, modulus, load)
    done = solve_ivp(rate, (0.0, time), start, method="DOP853", rtol=rtol, atol=1e-5 * rtol)
    assert done.success
    end = done.y[:, -1]
    return np.array([end[2] - 0.5, end[4], end[5]])


def foundation_at_rest(number, modulus, load, time):
    """The same three numbers in static balance with the load of that time; small angles."""
    points, stiffness = elements(number), modulus / number
    at = 0.5 * np.array([np.cos(10 * time), np.sin(10 * time)])
    weight = 8.0 * GRAVITY + load
    scale = weight / modulus

    def balance(x):
        depth, about_x, about_y = scale * x
        force = np.maximum(0.0, -stiffness * (depth + points[:, 1] * about_x - points[:, 0] * about_y))
        return [
            (force.sum() - weight) / weight,
            (force @ points[:, 1] - load * at[1]) / weight,
            (force @ points[:, 0] - load * at[0]) / weight,
        ]

    found, _, done, message = fsolve(balance, [-1.0, 0.0, 0.0], full_output=True, xtol=1e-13)
    assert done == 1, message
    return scale * found * np.array([1.0, 0.5, 0.5])


# --- a stack of spheres that roll on one another without sliding


def stack_mode(number, radius=0.1, mass=1.0):
    """The fastest way a stack falls: rate (1/s), x (n,) and angles about y (n,) per unit of the largest x.

    Rigid spheres, one above the other; x_1 = r th_1, x_{i+1} = x_i + r (th_i + th_{i+1}); a sphere that is
    d aside of the one below is d^2 / (4 r) lower.
    """
    x = np.zeros((number, number))
    for i in range(number):
        if i:
            x[i] = x[i - 1]
            x[i, i - 1] += radius
        x[i, i] += radius
    inertia = mass * x.T @ x + 0.4 * mass * radius**2 * np.eye(number)
    aside = np.diff(x, axis=0)
    carried = mass * GRAVITY * np.arange(number - 1, 0, -1)
    stiffness = -(aside.T * carried) @ aside / (2.0 * radius)
    square, modes = scipy.linalg.eigh(stiffness, inertia)
    x = x @ modes[:, 0]
    largest = x[np.abs(x).argmax()]
    return np.sqrt(-square[0]), x / largest, modes[:, 0] / largest


def stack_under_its_weight(x, modulus=1e11, radius=0.1, mass=1.0):
    """Heights (n,) of the centres in balance, pressed by Hertz, for spheres at x (n,)."""
    number = len(x)
    effective = np.full(number, radius / 2.0)
    effective[0] = radius
    carried = mass * GRAVITY * np.arange(number, 0, -1)
    depth = (0.75 * carried / (modulus * np.sqrt(effective))) ** (2.0 / 3.0)
    return np.cumsum([radius - depth[0], *np.sqrt((2.0 * radius - depth[1:]) ** 2 - np.diff(x) ** 2)])


# --- the tossed cube


def tossed_cube_distance(speed, time=1.0, rtol=1e-8, stiffness=1e4, damping=30.0, rubbing=1e3, mu=0.25):
    """How far (m) the cube of `models.tossed_cube` gets along x when thrown at `speed`, by LSODA.

    Corners push with max(0, K d - B d') and rub with the damper `rubbing`, cut off at mu times the push.
    """
    side, mass = 0.1, 0.37
    corners = np.array([[(k >> axis & 1) * 2 - 1 for axis in range(3)] for k in range(8)]) * side / 2
    inertia = mass * side**2 / 6

    def rate(t, s):
        turn, v, w = rotation(s[3:7]), s[7:10], s[10:]
        arm = corners @ turn.T
        u = v + np.cross(w, corners) @ turn.T
        normal = np.maximum(0.0, -stiffness * (s[2] + arm[:, 2]) - damping * u[:, 2])
        rub = -rubbing * u[:, :2]
        rub = rub * np.minimum(1.0, mu * normal / np.maximum(np.hypot(*rub.T), 1e-300))[:, None]
        force = np.concatenate([rub, normal[:, None]], axis=1)
        torque = np.cross(arm, force).sum(axis=0) @ turn
        lift = force.sum(axis=0) / mass - np.array([0.0, 0.0, GRAVITY])
        return np.concatenate([v, quaternion_rate(s[3:7], w), lift, torque / inertia])

    start = np.zeros(13)
    start[[2, 3]] = 0.3, 1.0
    start[7:] = [speed, 0.0, 0.0, 0.5, -2.0, 0.3]
    done = solve_ivp(rate, (0.0, time), start, method="LSODA", rtol=rtol, atol=1e-3 * rtol, max_step=2e-3)
    assert done.success
    return done.y[0, -1]


def bounced_height(height, stiffness, time):
    """Height at `time` of 1 kg dropped on an undamped spring, after one bounce."""
    speed, omega = np.sqrt(2 * GRAVITY * height), np.sqrt(stiffness)
    contact = (2 * np.pi - 2 * np.arctan2(speed / omega, GRAVITY / stiffness)) / omega
    flight = time - speed / GRAVITY - contact
    return speed * flight - 0.5 * GRAVITY * flight**2

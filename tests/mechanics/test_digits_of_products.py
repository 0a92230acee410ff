"""Products in the kinematics of a robot ask for all digits, which a GPU does not give in single precision."""

import jax

import jaxcontact as jc
from jaxcontact.mechanics.motion_equations import kinematics_of


def test_products_of_kinematics_ask_for_all_digits():
    """No frame of a body is rounded on its way."""
    model = jc.models.quadruped()
    program = jax.jit(lambda q: kinematics_of(model.system, model.params, q)).lower(model.state.q).as_text()
    products = [line for line in program.splitlines() if "dot_general" in line]
    assert products
    assert all("HIGHEST" in line for line in products)

"""What an impact law says of its own answer: each part of the law counts, and what fails says so."""

import jax.numpy as jnp
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.contact_space import contact_space, friction_directions, residual, residual_status


def corner(mu, *normals):
    """1 kg at the origin of the plane against one wall per normal."""
    J_n = jnp.array(normals)
    return jc.ContactTerms(
        M=jnp.eye(2), J_n=J_n, J_t=(J_n @ jnp.array([[0.0, -1.0], [1.0, 0.0]]))[:, None],
        phi=jnp.zeros(len(normals)), mu=jnp.full(len(normals), mu), active=jnp.ones(len(normals), bool),
    )  # fmt: skip


@pytest.mark.float32
def test_each_part_of_the_law_has_its_share():
    """Sliding at (1, -1) m/s with mu = 0.5: right is (1, -0.5) N s."""
    space, v = contact_space(corner(0.5, (0.0, 1.0))), jnp.array([1.0, -1.0])

    def found(*impulse):
        worst = residual(space, v, jnp.array(impulse), friction_directions(1, 2))
        return float(worst), int(residual_status(worst))

    assert found(1.0, -0.5) == (0.0, 0)
    wrong = {
        "still approaches": (0.9, -0.45),
        "outside of the cone": (1.0, -1.0),
        "rubs too little": (1.0, 0.0),
    }
    for what, impulse in wrong.items():
        worst, status = found(*impulse)
        assert worst > 0.05, what
        assert status == jc.Status.STALLED, what


@pytest.mark.slow
def test_a_sequence_cut_short_says_so():
    terms, v = corner(0.0, (0.0, 1.0), (1.0, 0.0)), jnp.array([-1.0, -1.0])
    for impacts, status in ((1, jc.Status.UNTERMINATED), (2, jc.Status.SUCCESS)):
        _, info = jc.impact.sequential(terms, v, (0, 1), max_impacts=impacts)
        assert int(info.status) == status

"""The page about what is read of a file says what the code does."""

from pathlib import Path

import pytest

mujoco = pytest.importorskip("mujoco")
from jaxcontact.io import support_page  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "understand" / "mjcf.md"


@pytest.mark.skipif(int(mujoco.__version__.partition(".")[0]) < 4, reason="the page has words of MuJoCo 4")
def test_the_page_is_current():
    assert PAGE.read_text() == support_page.page()

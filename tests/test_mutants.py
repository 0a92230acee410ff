"""The list of mutants fits the code; `python -m tests.mutants` runs them."""

from pathlib import Path

import pytest

from tests.mutant_list import MUTANTS

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_has_its_place_and_its_test(mutant):
    assert (ROOT / "jaxcontact" / mutant.file).read_text().count(mutant.before) == 1
    file, *names = mutant.test.split("::")
    text = (ROOT / file).read_text()
    assert all(f"{name.split('[')[0]}" in text for name in names)

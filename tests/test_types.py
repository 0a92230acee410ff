"""The types that an editor and a type checker see."""

import subprocess
import sys
from pathlib import Path

import pytest

USER_CODE = Path(__file__).parent / "typing" / "user_code.py"


@pytest.mark.slow
def test_code_of_a_user_passes_a_strict_type_checker(tmp_path):
    pytest.importorskip("mypy")
    options = ["--strict", "--config-file", "", "--cache-dir", str(tmp_path)]
    command = [sys.executable, "-m", "mypy", *options, "--follow-imports=silent", str(USER_CODE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    # And what is wrong is told: the record has no such field.
    wrong = tmp_path / "wrong.py"
    text = USER_CODE.read_text().replace("samples.v_plus", "samples.v_after")
    wrong.write_text(text.replace("info.residual", "info.resdual"))
    done = subprocess.run([*command[:-1], str(wrong)], capture_output=True, text=True, check=False)
    assert "v_after" in done.stdout and "resdual" in done.stdout, done.stdout

"""The command `jaxcontact`: one file per sub-command, and functions that the sub-commands share."""

from jaxcontact.cli.main import main as main
from jaxcontact.cli.main import process as process

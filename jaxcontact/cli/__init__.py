"""The command line; one file per command."""

from jaxcontact.cli.main import main as main
from jaxcontact.cli.main import process as process

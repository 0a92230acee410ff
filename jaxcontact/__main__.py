"""The command line: `python -m jaxcontact`."""

from jaxcontact.cli.main import process

if __name__ == "__main__":
    process()

"""`python -m jaxcontact` is the command line."""

from jaxcontact.cli.main import process

if __name__ == "__main__":
    process()

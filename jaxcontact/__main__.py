"""`python -m jaxcontact` is the command line."""

from jaxcontact.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

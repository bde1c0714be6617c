"""``python -m zluda`` is the ``zluda`` command."""

from zluda.cli.main import main

if __name__ == "__main__":
    main()

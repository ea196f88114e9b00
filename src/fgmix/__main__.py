"""`python -m fgmix`: the command `fgmix`, for environments whose scripts are not on the PATH."""

from fgmix.cli import main

if __name__ == "__main__":
    main()

"""`python -m fgmix`: the command `fgmix` of this interpreter's environment, where that is not on the path."""

from fgmix.cli import main

if __name__ == "__main__":
    main()

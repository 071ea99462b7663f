"""`python -m crosstask.cli`, for launchers that want a module."""

from crosstask.cli import main

if __name__ == "__main__":
    main()

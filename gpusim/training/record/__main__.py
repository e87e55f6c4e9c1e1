"""See `gpusim.training.record.run`."""

from gpusim.training.record.run import main

if __name__ == "__main__":
    main()

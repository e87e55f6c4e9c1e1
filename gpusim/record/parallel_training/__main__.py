"""See `gpusim.record.parallel_training.run`."""

from gpusim.record.parallel_training.run import main

if __name__ == "__main__":
    main()

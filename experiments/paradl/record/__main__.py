"""See `experiments.paradl.record.run`."""

from experiments.paradl.record.run import main

if __name__ == "__main__":
    main()

"""The physics: occupancy, contention, and a kernel as it is replayed. Pure functions: no clock, no state, no policy."""

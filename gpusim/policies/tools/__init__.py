"""What several policies are made of: readers of parameters, mixes of blocks, measurements, memory limits."""

"""The trace format: what ran on a GPU, ready to be replayed; how traces are checked, read, selected from and merged."""

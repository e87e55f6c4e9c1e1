"""The trace format: recorded GPU work that can be replayed; how traces are checked, read, selected from and merged."""

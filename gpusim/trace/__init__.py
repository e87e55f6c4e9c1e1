"""The trace format: what ran on a GPU, ready to be replayed; strict models, checks, files, and traces out of traces."""

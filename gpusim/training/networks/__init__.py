"""Convolutional networks as graphs of layers: their shapes, parameters, work and what waits for what."""

"""Training on several GPUs: networks as graphs of layers, ParaDL's oracle."""

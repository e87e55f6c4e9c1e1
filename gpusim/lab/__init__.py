"""How the model is measured: recorders, datasets of measurements, scores, the benchmark."""

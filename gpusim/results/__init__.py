"""What a replay gives: rows, metrics, pictures, and how far off the model was where the GPU was measured."""

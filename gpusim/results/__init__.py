"""Results of replays: rows, metrics, pictures and the model error."""

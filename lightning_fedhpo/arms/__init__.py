"""One arm of a run, an independent federated run: its weights and states, its scores, its way through the search."""

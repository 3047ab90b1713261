"""Training on shared data: steps of an optimiser as programs whose runs carry the weights in shares."""

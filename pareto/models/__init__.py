"""The things made of a model before anything is measured: weights, inputs, right answers."""

"""Complete search: subproblems (boxes with fixed ReLU signs), their bounds, and which neuron to split next."""

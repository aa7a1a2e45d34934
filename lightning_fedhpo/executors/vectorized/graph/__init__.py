"""From a traced step to a list of tensor operations, and what makes it faster."""

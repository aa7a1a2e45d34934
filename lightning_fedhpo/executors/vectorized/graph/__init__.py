"""Traces a batched step into a graph of tensor operations, and makes the graph faster."""

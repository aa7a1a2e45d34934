"""One client's work on the user's module: training, what it logs, which tensors it has, what is put back.

Between two clients: `Snapshot` restores attributes and untrained tensors, `ModuleState.load` the weights,
`LocalOptimizers.rewind` the optimizers.
"""

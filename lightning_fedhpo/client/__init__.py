"""One client's work on the user's module: training, what it logs, which tensors it has, what is put back."""

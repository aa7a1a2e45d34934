"""Where a hyperparameter goes: attributes, parameter groups of optimizers, learning-rate schedules."""

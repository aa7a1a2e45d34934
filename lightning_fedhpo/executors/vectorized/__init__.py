"""Many jobs, of clients and arms, as one batched computation.

The contract with the user's module:

- A training or validation step is a pure function of weights, batch and hyperparameters. It leaves nothing in the
  module, and does not depend on the batch's number, on the round, or on who calls it.
- Its loss, and what it logs, are means over the batch's examples; these do not meet before the mean.
- Whoever changes the module between rounds calls ``fed.retrace()``. Not needed for layers, buffers, ``requires_grad``,
  and numbers, flags and strings in a layer's attributes: one look before each round finds these.

It is checked, not policed: ``auto`` asks for a loss that ends in a known mean (:mod:`.known_means`), a few clients are
trained both ways before the run, and one job at rounds 1, 2, 4, 8, 16, 32, 64, 96, ... (:mod:`.equivalence`). After a
difference the run goes on one job after another, with a warning.
"""

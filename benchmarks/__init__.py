"""How fast it is: the same work by ``FederatedLoop``, by a loop written by hand, and by other simulators."""

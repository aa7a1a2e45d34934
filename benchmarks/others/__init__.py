"""The five workloads as programs of other simulators, each run in an environment of its own."""

"""The parts and the records of a run: population, ledger, tables, result, evaluation, checkpoints."""

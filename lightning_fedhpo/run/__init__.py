"""The parts and the records of a run: arms, ledger, tables, result, evaluation, checkpoints."""

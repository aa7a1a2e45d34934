"""What a run consists of and what it writes down: arms, ledger, tables, result, checkpoints."""

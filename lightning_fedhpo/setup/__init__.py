"""Everything before round 0: options, checks, preparation, dry run, proof of effect."""

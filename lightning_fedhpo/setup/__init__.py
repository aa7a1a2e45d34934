"""What happens before round 0: options and checks, preparation, the dry run, the proof of effect."""

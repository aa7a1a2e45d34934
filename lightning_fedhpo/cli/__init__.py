"""The command line: `fedhpo` and `fedhpo-compare`."""

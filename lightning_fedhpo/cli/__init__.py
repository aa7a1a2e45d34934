"""The command line: `fedhpo` runs a configuration, `fedhpo-compare` makes a table of a folder of runs."""

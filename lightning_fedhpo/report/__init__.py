"""The report of a run or a sweep: one HTML file, and a W&B Report."""

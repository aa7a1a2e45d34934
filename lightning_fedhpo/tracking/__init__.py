"""What is logged and where: Weights & Biases, the progress line, the files of a run's folder."""

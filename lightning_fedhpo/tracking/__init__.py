"""What a run leaves behind: tables on disk, a summary, the console's last word, Weights & Biases."""

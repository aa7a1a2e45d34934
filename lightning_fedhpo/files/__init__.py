"""Tables and folders on disk: a file is written whole or not at all, and a digest shows what has changed."""

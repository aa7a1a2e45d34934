"""Tables and folders on disk: a file is written whole or not at all."""

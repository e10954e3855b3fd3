"""One page for each study or command, of the same name."""

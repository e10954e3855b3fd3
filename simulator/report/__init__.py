"""Reports of results: terminal, Markdown and HTML. Nothing here runs a simulation."""

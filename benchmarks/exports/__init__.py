"""Whether engines accept the commands that plans export (``dev.py exports``)."""

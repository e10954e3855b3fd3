"""Speculation at a Distance (arXiv 2606.25091): drafts on the devices of the clients. Its abstract
was read, its text was not.
"""

"""SpecPipe keeps a pipeline full with the levels of a draft tree."""

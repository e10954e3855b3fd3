"""The page of ``specsim run``: a module for each of its sections."""

"""How weights are stored in files: types of their tensors, and mixes of types."""

"""What runs a model: the C++ core, or a script."""

"""Steps run by the C++ core, on this machine's processor."""

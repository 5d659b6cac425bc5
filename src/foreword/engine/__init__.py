"""The step loop, and its faces for scripts and servers."""

"""Two configurations under the same load, interleaved; which is faster, and how sure that is."""

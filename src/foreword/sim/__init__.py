"""Load runs on a virtual clock: the real engine, on hardware that is five numbers."""

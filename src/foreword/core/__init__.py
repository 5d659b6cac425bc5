"""Plain data that the other layers share."""

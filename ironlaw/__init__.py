"""ironlaw."""

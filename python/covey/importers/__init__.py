"""From what the user has to the graph."""

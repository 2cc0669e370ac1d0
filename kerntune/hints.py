"""Words of the heuristics: what is known of a kernel before it is compiled."""

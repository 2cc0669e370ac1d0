"""Takes times: one file a timer, and the rules that say when to stop."""

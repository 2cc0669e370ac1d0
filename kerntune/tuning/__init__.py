"""From a call with candidates to its winner: who races, who is wrong, who wins, and what is remembered of it."""

"""What a nursery imports before it forks: all that sealed processes need, none of it users' code."""

from kerntune.referee import candidate_recorder, reference_results, replayed_outputs

__all__ = ["candidate_recorder", "reference_results", "replayed_outputs"]

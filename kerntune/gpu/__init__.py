"""The only rooms that touch a GPU or a compiler."""

"""Fresh processes that time two recordings in turn, with the driver alone: no torch, no Triton, no user code."""

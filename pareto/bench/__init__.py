"""`bench transport`: every way of moving tensors beside the least that can be done, in one interleaved run."""

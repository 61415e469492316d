"""`--testbed simulated`: a sweep without a machine. Compute times are stated, links are arithmetic, the clock jumps."""

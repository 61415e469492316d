"""One sweep on many testbeds at once: a driver hands out tasks, by dask.distributed, to members that hold testbeds."""

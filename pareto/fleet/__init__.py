"""One sweep on many testbeds at once.

The driver hands out tasks and writes the rows; a member, a process of its own, holds each testbed and measures. Between
them is dask.distributed, which is optional.
"""

"""The files of a model profile: what units take, what backends add, and what codecs do."""

from __future__ import annotations

from pareto.analysis.schema.columns import table

PROFILE = table(
    "profile.csv",
    """
    name: host
        `edge`, `middle1`, ..., `server`
    name: device
        `cpu` or `cuda:0`
    whole: batch_size threads
        images in a run, and compute threads
    positive: cpu
        the share of a core that the host gets: 1 but on a local testbed with `--edge-cpu`
    whole: unit
        counts from 1; 0 is the row of all units run as one stage, without marks between them
    name: unit_name
        the point at which the unit ends; `whole` in the row of all
    not negative: median_s
        the median time of the unit, by marks between units within a run of all of them, times a factor that is the
        same for all units: they add up to the median run. Processor time over the share of a core; of several
        threads with whole cores the clock on the wall; on a GPU CUDA events. The row of all is of runs without
        marks, by the clock on the wall, less waits for a core that something else had
    not negative: low_s high_s
        the median's 95 % interval
    not negative: least_s
        the 5 % quantile: what a bound is made of. In the row of all it is that of the runs with marks
    not negative: outside_s
        in the row of all: what a run takes besides its units: copies to and from a GPU
    number: after_pause_s
        in the row of all: how much longer a run takes after a pause of 20 ms. Below 0 with `--edge-cpu`, if the quota
        has come anew by then
    not negative: flops
        floating-point operations for one image: of convolutions, matrix products and attention, two for each
        multiply-add
    not negative: parameters parameter_bytes
        how many numbers the unit has as parameters, and their size
    not negative: activation_bytes
        size of all tensors that the unit makes from one image
    not negative: payload_bytes
        tensor bytes that cross a link after the unit, for one image
    not negative: peak_bytes
        the most memory in use while the unit ran: of the process, or of the GPU's allocator
    not negative: energy_j
        in the row of all: energy of a run, by the device's own sensor. It includes idle power
    """,
)
BACKENDS = table(
    "backends.csv",
    """
    name: link
        `edge-server`, `edge-middle1`, ...
    name: backend
        `tcp`, `rpc` or a variant
    not negative: payload_bytes
        size of the tensor that went over the link
    positive: trip_s
        the round trip, the tensor there and four bytes back: the lower quartile of several rounds' medians
    not negative: link_s
        what of it the link's own delays and rate take, as probed or shaped; 0 where the local testbed's link is not
    not negative: near_s far_s
        processor time that a payload and its answer take of the host that sends it, and of the one that receives it,
        where many are under way
    not negative: shaper_s
        the same of the relay
    """,
)
CODECS = table(
    "codecs.csv",
    """
    name: host
        `edge`, `middle1`, ..., `server`
    whole: batch_size
        images in a payload
    name: codec
        its name, as in `trials.csv`
    name: point
        where the model is cut: what crosses a link there is the payload
    not negative: payload_bytes
        tensor bytes of a payload
    not negative: wire_bytes
        what the codec makes of it: the median over the payloads of a few batches
    not negative: wire_least_bytes
        the least that it makes of any payload of the run; empty where that is not known: a bound has no bytes there
    not negative: encode_s encode_least_s decode_s decode_least_s
        what it takes on this host: the median, and the least of all runs. Processor time over the share of a core; with
        several threads the clock on the wall. Decoding is empty where no host is before this one
    """,
)
PROFILE_TABLES = (PROFILE, BACKENDS, CODECS)

"""The files beside trials.csv: of hosts, links, requests and sensors, and of what a search struck off."""

from __future__ import annotations

from pareto.analysis.schema.columns import table

STAGES = table(
    "stages.csv",
    """
    name: run model point backend netem
        the trial, as in `trials.csv`
    whole: batch_size
    name: codec engine in_flight_asked prefetch_asked allocator
    whole: round
    name: testbed
    whole: position
        place in the chain, 0 for the edge; `edge`, `middle1`, ..., `server`
    name: host
    not negative: first_unit last_unit
        the units that it ran: from the first one up to, but without, the last one. If they are equal, the
        host only forwarded. The server's last unit is empty: it ran the rest
    not negative: compute_s
        median compute time of a request in the latency phase
    not negative: best_s
        the shortest time of a run in steady work: the baseline, or the best quarter of a second of the
        throughput phase. With a codec its times are added; of an edge that decodes ahead (`prefetch`) it is that of
        its slower step: decoding, or computing and encoding
    not negative: baseline_s
        mean time of a run with nothing in flight, before or after the trial, whichever is less, without waits
        for a core that something else had; and `compute_s` as a multiple of it
    positive: slowdown
    number: utilization
        share of the throughput phase's steady part in which it computed, decoded or encoded; of an edge that decodes
        ahead (`prefetch`), that of the busier of its two steps
    number: bubble_s
        idle time per request in that part
    not negative: payload_bytes
        tensor bytes that a request sends over its link to the next host. Empty where it sends nothing, as are
        the two columns that follow
    number: transfer_s return_s
        how long a request, and its result, occupy that link at the profile's rate
    number: cpu_percent rss_bytes peak_rss_bytes
        as in `trials.csv`
    number: weights_bytes
        size of the parameters that it holds
    not negative: encode_s decode_s
        median of what it took for a request to encode what it sent, and to decode what came; with `--from jpeg` also to
        make pixels of its file. Empty without a codec, and such a file
    not negative: wire_bytes
        what it sent of a request's payload after the codec: the median. Empty without a codec
    not negative: engine_s
        how long the host's engine took to build its stage, before anything was timed. Empty for eager
    number: temperature_c
        as in `trials.csv`
    name: throttled
    not negative: energy_j
    number: active_energy_j steal_percent others_percent wait_percent core_percent
    """,
)
LINKS = table(
    "link.csv",
    """
    name: at
        when the probe began (UTC)
    name: model netem
        the model of the trial, and the profile of the link
    name: testbed
        as in `trials.csv`
    name: link
        which link of the chain: `edge-server`, `edge-middle1`, ...
    name: trial when
        the trial, and whether the probe was taken `before` or `after` it. The probe after one trial serves as
        the one before the next, if that follows at once
    name: verdict
        `ok`, or `off` with the reason. A reading that is off is repeated, up to three times; the last one
        counts
    free: reason
    not negative: asked_rtt_s asked_rate_bps asked_rate_back_bps
        what the profile says; the mean, where a trace changes it
    not negative: rtt_s rate_bps rate_back_bps
        what was measured: median round trip of small messages, payload rate of a bulk transfer (by TCP; by
        datagrams where packets are lost or the queue is short)
    number: asked_loss asked_loss_back datagrams loss loss_back
        on a link that loses packets: the profile's share of losses, how many small datagrams were sent in
        each direction, and the share that did not arrive
    number: position_s
        where the trace was when the probe began
    """,
)
STRUCK = table(
    "struck.csv",
    """
    name: run model point point_name backend netem
        the cell that `--search` struck off, as in `trials.csv`
    whole: batch_size
    name: codec engine in_flight_asked prefetch_asked allocator
    whole: round
        after which round it was struck off
    name: how
        `physics`: it has no trial, and its bound is worse than what another cell was measured at, in latency and
        throughput. `rounds`: in differences within rounds, another cell was better by over 2 % in one of them, and not
        worse by as much in the other
    positive: latency_s throughput_ips
        `physics`: its bound; `rounds`: the medians of its valid trials
    not negative: payload_bytes
        tensor bytes that cross the first link in one request
    name: by_point by_backend
        the cell that beats it
    not negative: probability
        that this is chance, at most: over all looks at the rows, and all pairs of cells
    """,
)
REQUESTS = table(
    "requests/",
    """
    name: phase
        `latency` or `throughput`
    number: started_s finished_s
        since the start of the phase, on the edge's clock
    number: edge_s serialize_s server_s
        as in `trials.csv`, of this request
    numbers: middle_s
        the same for each middle host
    number: encode_s decode_s wire_bytes
        as in `trials.csv`, of this request. Empty without a codec, whose name the file has behind the backend
    """,
)
DEVICES = table(
    "devices/",
    """
    name: host
        `edge`, `middle1`, ..., `server`
    number: at_s
        on that host's own clock, which must never be compared with another's
    number: cpu_percent
        the worker's share of one core, resident memory
    whole: rss_bytes
    number: temperature_c frequency_hz
        CPU temperature and clock; the throttling bits as a whole number
    whole: throttled
    number: energy_j power_w
        energy since some fixed time (only differences have a meaning), and power
    number: gpu_percent
        the GPU's utilisation, memory in use, and clock
    whole: gpu_memory_bytes
    number: gpu_clock_hz
    number: busy_s others_s steal_s
        seconds since some fixed time in which the worker's cores were busy, other programs had them, and a
        hypervisor took them; mean over the cores
    number: waited_s throttled_s
        seconds in which the worker's threads waited for a core, and in which a CPU quota held it back
    """,
)

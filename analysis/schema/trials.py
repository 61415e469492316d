"""trials.csv, which has a row for each trial: its columns, what its statuses mean, and how a trial is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pareto.analysis.schema.columns import table

CELL = (
    "model",
    "point",
    "backend",
    "netem",
    "batch_size",
    "codec",
    "engine",
    "in_flight_asked",
    "prefetch_asked",
    "allocator",
)
"""The columns that say which cell a row is of."""
LATENCY_ONLY, THROUGHPUT_ONLY = "latency only", "throughput only"
STATUSES = ("ok", LATENCY_ONLY, THROUGHPUT_ONLY, "invalid", "failed")
STANDS = {"latency": ("ok", LATENCY_ONLY), "throughput": ("ok", THROUGHPUT_ONLY)}
"""The statuses of the trials whose latency, or throughput, can be trusted."""
ROUNDING = 1e-6
"""Figures are written with nine digits: one that is beyond its bound by less than this share may be within it."""
BETWEEN = "; "
"""Between several names in one column."""

TRIALS = table(
    "trials.csv",
    """
    name: run model point point_name backend netem
        the cell. `point` counts the units that run on the edge: 0 sends the input, the last sends nothing. In
        a chain of hosts it has a number for each link, the units that run before it: `3+7` is 3 on the edge,
        4 on the next host, and the rest on the last. `netem` likewise names a profile for each link
        (`wifi+lte`), or one for all. `allocator` says whether the hosts kept freed memory: `tuned`, `default`
    whole: batch_size
    name: codec engine in_flight_asked prefetch_asked allocator
    whole: round
        which repetition, from 1
    name: testbed
        the testbed that measured it: `local`, `simulated`, the name of a file of hosts without its ending, or `served`.
        A second one of the same name has a number: `local-2`
    name: stands_for
        the codecs of the sweep that come to the same here as `codec`, with `; ` between: none and int8 where bytes
        cross, which are not quantised, and every codec where nothing crosses. They are measured once, and compared as
        if each had this trial
    name: status
        `ok`; `latency only`: its throughput must not be trusted, `reason` says why, and the figures of its latency
        phase count; `throughput only`: the other way round; `invalid`: neither must be trusted; `failed`: `reason` is
        the error ([more](../docs/measuring.md#judged-apart))
    free: reason
    positive: latency_s
        median of the latency phase, from input ready to result in hand, on the edge's clock, with one request
        in flight
    positive: latency_p95_s
        95th percentile; needs at least 130 requests
    not negative: edge_s
        median compute time of the edge's stage, on the edge's clock
    not negative: encode_s decode_s
        median of what all hosts together took for a request to encode what they sent, and to decode what came, each on
        its own clock; with `--from jpeg` also to make pixels of its file. Empty without a codec, and such a file
    not negative: serialize_s
        median processor time of the threads that turn tensors into bytes, without their waits. For rpc it is
        that of the asynchronous call on the sender's side, which also hands the tensors over; serializing the
        answer is in `network_s`
    number: network_s
        the rest of a request's latency without its own edge, codec, serialize, middle and server times, median over
        the requests. It contains the links, the kernels, and every wait for a processor between the stages. A
        request with a negative rest makes the trial `invalid`
    not negative: middle_s
        median of what all middle hosts together compute for a request. Empty where there are none, or nothing
        reaches them
    not negative: server_s
        median compute time of the server's stage, on the server's clock. Empty where nothing reaches the server
    positive: edge_slowdown server_slowdown
        `edge_s` and `server_s` as a multiple of the stage's baseline, which is taken alone, before and after
        the trial ([how](../docs/measuring.md#load-on-the-hosts)). Over 1.5 (`--slowdown`) the latency is not
        trusted if that makes up 5 % of it, nor is the throughput if the stage was as slow in its phase. Empty where
        the host runs no unit
    not negative: latency_bound_s
        what the stages compute for a request (the median of all together, or the sum of their baselines if
        that is less) + over each link: delay out + delay back + payload / rate out + result / rate back. With a codec:
        its times are added, and what it sends counts in place of the payload
    positive: throughput_ips
        images per second with many requests in flight, in steady state: from the first completion to the last
        one before the last request began. Filling and draining the steps do not count. With N in flight the
        completions that count are a multiple of N, because they may come in bursts of N
    positive: throughput_bound_ips
        batch / max(each stage; on each link: payload / rate out, result / rate back), with each stage's `best_s`
        (`stages.csv`)
    name: bound_by
        the step that sets the throughput's bound: a host (`edge`, `middle1`, ..., `server`), or a link and
        its direction (`edge-server out`, `edge-server back`). It is not always the busiest step
    positive: in_flight
        requests kept in flight in the throughput phase
    number: prefetch
        requests that the edge decoded ahead in the throughput phase, beside those in flight; 0 if it decoded in
        line, or nothing
    not negative: probed_latency_bound_s
        the same two bounds with the links' rates as probed, the faster of before and after, instead of the
        profile's. A figure that is better than both of its bounds is too good to be true
    positive: probed_throughput_bound_ips
    name: busiest
        the step that was busy for the greatest share of the throughput phase's steady part, and that share: a
        host's as it measured it, a link's from `throughput_ips` and the profile's rate. Empty if a host's
        share is unknown
    number: busiest_utilization
    positive: loaded_latency_s loaded_latency_p95_s
        median and 95th percentile of the latency of requests in the throughput phase, from when the edge
        begins with a request, which with `prefetch` is decoding it ahead, over those that began with `in_flight` - 1
        others on their way. The percentile needs at least 130 of them. `latency_s` is that of a single request: the
        two phases never run at the same time
    positive: sequential_ips pipeline_gain
        images per second with one request in flight: the images of the latency phase over the time that its
        requests took; and `throughput_ips` as a multiple of that
    not negative: payload_bytes result_bytes
        tensor bytes that the edge sends, and receives, for a request
    not negative: wire_bytes
        what the edge sends of a request's payload after the codec: the median over requests, without packet headers.
        Without a codec it is `payload_bytes`
    number: latency_requests throughput_requests
        how many requests each phase measured
    number: max_abs_error
        largest deviation of any result in the trial from that of the whole model, as a share of the largest value of
        its output, or of its column where an output has columns, as boxes and scores are; of 1 where that is less
    not negative: top1 top1_images
        share of all images of the run whose label is the top class after the codec, and how many images they are. Only
        with labels. This and the columns up to `wrong_images` belong to the split and the codec: the driver works them
        out in one process before the run, from the results that the trial's must be equal to within the proof's
        tolerance. Those of a codec that loses nothing, and of none, are the whole model's. Empty if the trial's results
        are not equal
    not negative: agreement agreement_images
        share of all images of the run whose top class after the codec is that of the whole model without one, and how
        many images they are. Needs no labels. Without a loss it is 1, by that proof
    not negative: output_error
        what the codec does to the output of these images: the Euclidean norm of its difference from that of the whole
        model without a codec, as a share of the latter's norm. Without a loss it is 0, by that proof; `max_abs_error`
        is what was measured
    not negative: mean_iou
        of a segmentation model: the mean over classes of intersection over union of its pixels and those of the whole
        model without a codec, over these images
    not negative: map50
        of a detector: the mean average precision at an overlap of 0.5 of its boxes, where those of the whole model
        without a codec are the truth, over these images. Empty if that has no boxes
    free: changed_images
        which of these images changed their top class: a hexadecimal digit for each four, the first image its highest
        bit. Empty without classes, and with more than 1024 images
    free: wrong_images
        likewise, whose top class is not their label
    not negative: rtt_s rate_bps
        the link as probed, mean of before and after: round trip, TCP goodput from edge to server
    number: loaded_rate_bps
        the trial's own transfers as a probe: the payload of its fastest request over the time in which it
        crossed the link. Only with one link and transfers of at least 20 ms. A tcp trial that is 3 % and 4 ms
        slower than its probes, and than the same bytes over the idle link right after it, is `invalid`
    number: link_seed
        the seed of the links' chance (losses, jitter and the like) in this trial. It follows from the sweep's
        seed and the round, so every cell of a round meets the same chance, packet by packet. Empty where
        there is no chance, or the shaper takes no seed
    number: retransmits
        TCP segments that were sent again: by the edge during the trial, by the middle hosts since they got
        their stage
    number: dropped_packets
        packets that full queues dropped on the shaped link during the trial. With netem they include the
        losses that the profile asks for; with the relay they do not
    number: trace_from_s trace_to_s
        the part of the link's trace that the trial saw, in seconds from the trace's beginning (beyond its
        period: a later lap). In a chain it is that of the first link that changes. Empty for a link that does
        not change
    name: secure
        how the backend encrypts what crosses the link: `none` or `tls`. Its name says it, too (`tcp:tls`)
    name: congestion
        what the kernel says (TCP_INFO) about the edge's connections to the next host that carried the trial:
        the congestion control of the busiest one; how many they were; the segments that all of them sent
        again during the trial; and at its end the sum of their congestion windows, and the busiest one's
        smoothed and least round trip and its latest delivery rate. Empty where nothing crosses
    number: tcp_connections tcp_retransmits tcp_cwnd_packets tcp_rtt_s tcp_min_rtt_s tcp_delivery_rate_bps
    number: edge_cpu_percent server_cpu_percent edge_rss_bytes server_rss_bytes
        the worker process's share of one core, and its memory
    number: edge_peak_rss_bytes server_peak_rss_bytes
        the worker's highest resident memory in the trial
    number: edge_temperature_c server_temperature_c
        highest CPU temperature in the trial, °C
    number: edge_frequency_hz server_frequency_hz
        mean CPU clock
    name: edge_throttled server_throttled
        the bits of a Raspberry Pi's `vcgencmd get_throttled` that were on during the trial, in hex such as `0x0`:
        `0x1` under-voltage, `0x2` frequency capped, `0x4` throttled, `0x8` soft temperature limit. A trial with any
        of them is `invalid`, or `latency only` where they came up in the throughput phase
    number: edge_steal_percent server_steal_percent
        share of the trial in which a hypervisor gave the host's cores to other machines. A host's cores are
        those on which its worker may run
    number: edge_others_percent server_others_percent
        share of the cores' time that programs other than the worker took during the trial. On the local
        testbed these include the relay, the driver and sshd. On real hosts over 20 (`--others`) the figures
        are not trusted in whose phases they took as much. Empty where a CPU quota held the worker back,
        because the kernel's ticks do not tell then
    number: edge_wait_percent server_wait_percent
        how long the worker's threads were ready and had no core, all together, as a share of the trial. It
        includes waits for the worker's own threads and for a CPU quota
    number: edge_core_percent server_core_percent
        share of the throughput phase's steady part in which the cores were busy with anything, or held back
        by a CPU quota that was used up
    number: strangers_percent
        local testbed: share of the hosts' cores that programs outside of this run took during the trial. Over
        20 (`--others`) it is `invalid`.
        Empty on real hosts, where `others_percent` has it
    name: full_cores
        hosts whose `core_percent` is at least 90 while the throughput is under 90 % of its bound: neither a
        stage alone nor the link limits it, but everything together that these cores have to do. Empty: none,
        or not measured
    not negative: edge_energy_j server_energy_j
        energy **per image** over the throughput phase, by the device's own sensors (PMIC of a Raspberry Pi 5,
        RAPL, NVML). It includes idle power, which the manifest states
        (`sessions[].hosts.<role>.idle_power_w`)
    number: edge_active_energy_j server_active_energy_j
        the same without the idle power over that time: what an image costs beyond what the device would have
        drawn anyway. Empty where the idle power is unknown. A negative value is noise
    number: edge_gpu_percent server_gpu_percent
        mean GPU utilisation
    number: edge_gpu_memory_bytes server_gpu_memory_bytes
        highest GPU memory in use
    number: edge_gpu_s server_gpu_s
        median GPU time of a request by CUDA events, copies included
    name: started_at
        when the trial began (UTC), and how long it took with its probes
    number: wall_s
    number: restart
        which start of the workers measured the trial, counted over the run. Workers start anew with each
        session, after a fault, and as `--restart` says
    """,
)


def cell_name(row: Mapping[str, Any]) -> str:
    """The start of a cell's file names: `requests/<cell>-r<round>.parquet`. row: its columns of `CELL`."""

    def apart(column: str, usual: str, sign: str = "") -> str:
        """A value that is not usual; runs of earlier versions lack some."""
        value = str(row.get(column) or usual)
        return "" if value == usual else f"-{sign}{value}"

    point = "+".join(f"{int(cut):02d}" for cut in row["point"].split("+"))
    # Not every system takes a colon in the name of a file.
    sent = f"{row['backend']}{apart('codec', 'none')}{apart('engine', 'eager')}".replace(":", ".")
    deep = (
        apart("in_flight_asked", "auto", "d")
        + apart("prefetch_asked", "0", "p")
        + apart("allocator", "tuned")
    )
    return f"{row['model']}-k{point}-{sent}-{row['netem']}-b{row['batch_size']}{deep}"


def trial_name(cell: str, number: int) -> str:
    """The cell and round of a trial, as its files and link.csv name it."""
    return f"{cell}-r{number:02d}"


def status_of(*, latency: bool, throughput: bool) -> str:
    """The status of a trial that measured something, by which of its figures can be trusted."""
    if latency and throughput:
        return "ok"
    return LATENCY_ONLY if latency else THROUGHPUT_ONLY if throughput else "invalid"

"""What the words on the page mean."""

from __future__ import annotations

from analysis.page.markup import Html, pairs

WORDS = {
    "point": "How many blocks of the model run on the edge. 0 sends the input to the server, the last keeps everything "
    "on the edge. In a chain of hosts it has a number for each link: 3+7 is 3 blocks on the edge, 4 on the next host, "
    "the rest on the last.",
    "latency": "The time from input ready to result in hand, on the edge's clock, with one request in flight. The "
    "median of a trial's requests, then the median over rounds.",
    "throughput": "Images a second with as many requests in flight as should keep the slowest of edge, link and server "
    "busy. It is not 1/latency.",
    "bound": "What physics allows. Of the latency: the stages' compute times, the delays, and payload over rate. Of "
    "the throughput: one over the slowest of these steps.",
    "eff.": "Efficiency: the share of the bound that was reached. Near 100 % the link and the devices were measured, "
    "not the harness.",
    "gain": "The throughput as a multiple of that with one request after another.",
    "bound by": "The step that sets the bound of the throughput in most rounds: a host, or a link, out or back. It "
    "would be the slowest if every step did what it can.",
    "busiest": "The step that was busy for the greatest share (busy) of the time with many requests in flight. It need "
    "not be the one that sets the bound: a stage may be slower under load than it can be.",
    "under load": "The median latency while the throughput was measured, with all those requests in flight. Latency "
    "and throughput, as plotted, are not had at the same time.",
    "edge, server": "Compute time of each stage, each on its own host's clock. middle: of all hosts between together.",
    "serialize": "Processor time to turn tensors into bytes; for rpc, of requests only.",
    "network": "What remains of a request's latency, waiting for a processor between the stages included: no clock of "
    "one host is subtracted from another's.",
    "front": "A point is on it if no other is as good in every objective and better in one. all: on the front of all "
    "backends together. own: on its backend's only. ruled out: it does not "
    "satisfy what the report was asked to allow.",
    "p": "The probability that a point is on its backend's front, by bootstrap over whole rounds; p, all: on the front "
    "of all backends. Empty with too few rounds.",
    "any": "In place of a backend: at this point nothing crosses, so that all backends are the same. Its rounds are "
    "the mean of what was measured under each. It competes on the front of each and of all, with one p.",
    "ties": "Other points that cannot be told apart from this one by what was measured.",
    "95 %": "An interval for the median over rounds that assumes no distribution. Empty with fewer than 6 rounds.",
    "outliers": "Rounds that lie far from the others. They are counted, and stay in.",
    "round": "Every point, backend and profile once, in random order, so that a machine's drift does not become a "
    "difference between points.",
    "left out": "Trials that are invalid (measured, but not to be trusted) or failed. They are never averaged in.",
}


def words() -> Html:
    return pairs(WORDS.items(), class_="words")

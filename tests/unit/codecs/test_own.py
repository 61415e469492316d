"""A user's own codec: what it may be, how it learns what it is for, and one line for each way to get it wrong."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from syrupy.assertion import SnapshotAssertion

from pareto.partitions.weights import file_digest
from pareto.protocol import messages
from pareto.protocol.errors import BackendError, UserError
from pareto.protocol.jsonlines import plain
from pareto.protocol.validation import read
from pareto.remote.backends.base import BYTES, Tensors, layout
from pareto.remote.codecs import own
from pareto.remote.codecs.own import Cut, Received
from pareto.remote.codecs.registry import Codec, parse
from tests import REPOSITORY
from tests.unit.own_codecs import ENTROPY, LEARNED, simple, written
from tests.unit.refusals import refusal

MAP = (("float32", (1, 6, 5, 4)),)
CUTS = (
    Cut.of("net", 0, "input", (("uint8", (1, 3, 9, 8)),)),
    Cut.of("net", 1, "stem", MAP),
    Cut.of("net", 4, "head", (("float32", (1, 10)),)),
)


def payload(batch: int = 1, seed: int = 0) -> Tensors:
    return (torch.randn(batch, 6, 5, 4, generator=torch.Generator().manual_seed(seed)),)


def made(file: Path, attribute: str = "Own", *, behind: str = "", cuts: Sequence[Cut] = CUTS) -> Codec:
    (codec,) = own.bound([parse(f"{file}:{attribute}{behind}")], cuts, seed=3)
    return codec


def at_stem(file: Path, attribute: str = "Own", *, behind: str = "") -> Codec:
    return made(file, attribute, behind=behind, cuts=CUTS[1:2]).for_cut(1)


def on_a_host(codec: Codec, folder: Path) -> Codec:
    """The codec as a host makes it of what it is sent, as JSON."""
    assert codec.own is not None
    steps: Any = codec.made
    state = folder / "weights.safetensors"
    save_file(own.state_of(steps), state)
    sent = messages.OwnCodec(
        replace(codec.own, typed="b.py"), str(state), file_digest(state), 3, own.cuts_of(steps)
    )
    message = read(messages.OwnCodec, json.loads(json.dumps(sent, default=plain)))
    received = Received(message, "net")
    return parse(codec.text, {received.own.name: received}).bound(received)


def test_a_learned_bottleneck_is_made_for_each_cut_that_it_fits(tmp_path: Path) -> None:
    codec = made(written(tmp_path, LEARNED), "Bottleneck")
    assert codec.text == "Bottleneck"
    assert codec.made is not None and [*codec.made] == [1]
    assert codec.fits((1,), 9) and codec.fits((1, 9), 9)
    assert not codec.fits((0,), 9) and not codec.fits((1, 4), 9)
    there = codec.for_cut(1)
    for batch in (1, 3):
        (encoded,) = there.encode(payload(batch))
        assert (encoded.dtype, encoded.shape) == (torch.float16, (batch, 2, 5, 4))
        assert there.encoded(layout(payload(batch))) == (("float16", (batch, 2, 5, 4)),)
        decoded = there.decode((encoded,), layout(payload(batch)))
        assert layout(decoded) == layout(payload(batch))
        assert not decoded[0].requires_grad


@pytest.mark.parametrize("behind", ["", "+zstd", "+int8", "+int8+lz4"])
def test_a_host_encodes_and_decodes_as_the_driver_does(tmp_path: Path, behind: str) -> None:
    """Also where its random numbers are others: the weights are those that were sent."""
    codec = made(written(tmp_path, LEARNED), "Bottleneck", behind=behind)
    sent, of = codec.for_cut(1).encode(payload(2)), layout(payload(2))
    torch.manual_seed(99)
    there = on_a_host(codec, tmp_path)
    assert there.text == codec.text and there.fits((1,), 9) and not there.fits((0,), 9)
    assert there.coded_name((1,)) == codec.coded_name((1,))
    assert all(map(torch.equal, there.for_cut(1).encode(payload(2)), sent))
    came = there.for_cut(1).decode(sent, of)
    assert all(map(torch.equal, came, codec.for_cut(1).decode(sent, of)))


def test_its_random_weights_depend_on_the_seed_and_it_is_another_without_its_cut(tmp_path: Path) -> None:
    file = written(tmp_path, LEARNED)
    before = torch.get_rng_state()
    codecs = (own.bound([parse(f"{file}:Bottleneck")], CUTS, seed)[0] for seed in (1, 1, 2))
    first, again, other = (codec.for_cut(1).encode(payload())[0] for codec in codecs)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    codec = made(file, "Bottleneck")
    assert codec.for_cut(1) is codec.for_cut(1)
    assert codec == replace(codec, made=None) != codec.for_cut(1)


def test_bytes_of_any_length_up_to_the_declared_one_with_nothing_behind(tmp_path: Path) -> None:
    codec = at_stem(written(tmp_path, ENTROPY), "Entropy")
    zeros = (torch.zeros(2, 6, 5, 4),)
    long, short = codec.encode(payload(2)), codec.encode(zeros)
    assert len(short[0]) < len(long[0])
    assert codec.encoded(layout(zeros)) == ((BYTES, (2 * (2 * 120 + 64),)),)
    assert torch.equal(codec.decode(short, layout(zeros))[0], zeros[0])
    with pytest.raises(BackendError, match="expected"):
        codec.decode((torch.zeros(609, dtype=torch.uint8),), layout(zeros))
    with pytest.raises(BackendError, match=r"own\.py:\d+: Entropy\.decode\(\) fails: error: "):
        codec.decode((torch.zeros(60, dtype=torch.uint8),), layout(zeros))
    file = tmp_path / "own.py"
    with pytest.raises(UserError, match=r"Entropy\+zstd:3: Entropy declares most_bytes"):
        made(file, "Entropy", behind="+zstd")
    for text, attribute, varies in ((ENTROPY, "Entropy", True), (LEARNED, "Bottleneck", False)):
        steps: Any = at_stem(written(tmp_path, text, f"{attribute}.py"), attribute).made
        assert steps[1].varies is varies


def test_modules_among_its_attributes_travel_and_a_function_may_make_it(tmp_path: Path) -> None:
    returned = "return (self.layer(tensors[0]),)"
    text = simple(returned, returned, "def __init__(self): self.layer = nn.Conv2d(6, 6, 1)")
    codec = at_stem(written(tmp_path, text))
    steps: Any = codec.made
    assert {*own.state_of(steps)} == {"1.layer.weight", "1.layer.bias"}
    sent = codec.encode(payload())
    assert torch.equal(on_a_host(codec, tmp_path).for_cut(1).encode(payload())[0], sent[0])
    text = simple("return (-tensors[0],)", "return (-tensors[0],)") + "\ndef negative():\n    return Own()\n"
    codec = at_stem(written(tmp_path, text), "negative")
    assert codec.text == "negative"
    assert torch.equal(codec.encode(payload())[0], -payload()[0])


def test_trained_weights_are_read_on_the_driver_only(tmp_path: Path) -> None:
    more = """
    def __init__(self, cut): self.layer = nn.Linear(4, 4, bias=False)

    @staticmethod
    def pretrained(cut):
        assert (cut.model, cut.point, cut.name) == ("net", 1, "stem")
        return {"layer.weight": torch.load("weights.pth", weights_only=True)}
"""
    text = simple("return (self.layer(tensors[0]),)", more=more.strip())
    weight = torch.full((4, 4), 0.5)
    torch.save(weight, tmp_path / "trained.pth")
    file = written(tmp_path, text.replace("weights.pth", str(tmp_path / "trained.pth")))
    codec = at_stem(file)
    assert torch.equal(codec.encode(payload())[0], payload()[0] @ weight.T)
    (tmp_path / "trained.pth").unlink()
    assert torch.equal(on_a_host(codec, tmp_path).for_cut(1).encode(payload())[0], payload()[0] @ weight.T)
    with pytest.raises(UserError, match=r"no weights for codec Own: .*No such file"):
        at_stem(file)


def test_what_comes_of_another_layout_is_refused(tmp_path: Path) -> None:
    of_driver = made(written(tmp_path, LEARNED), "Bottleneck")
    of_driver.for_cut(1).encode(payload())
    codec = on_a_host(of_driver, tmp_path).for_cut(1)
    (encoded,) = codec.encode(payload())
    for wrong in ((), (encoded, encoded), (encoded.float(),), (encoded[:, :1],)):
        with pytest.raises(BackendError, match="expected"):
            codec.decode(wrong, layout(payload()))
    with pytest.raises(BackendError, match="never run on float32 7x6x5x4"):
        codec.encode(payload(7))


def test_weights_that_arrive_damaged_are_refused(tmp_path: Path) -> None:
    codec = made(written(tmp_path, LEARNED), "Bottleneck")
    codec.for_cut(1).encode(payload())
    state = tmp_path / "sent"
    state.write_bytes(b"no weights")
    assert codec.own is not None
    message = messages.OwnCodec(codec.own, str(state), "0" * 64, 3, [])
    with pytest.raises(UserError, match="sent arrived damaged"):
        Received(message, "net")
    assert not state.exists()


WRONG = {
    "encode raises": simple("raise ValueError('no\\nway')"),
    "decode raises": simple(decode="return tensors[1]"),
    "encode returns a tensor": simple("return tensors[0]"),
    "encode returns a number in a tuple": simple("return (1,)"),
    "encode returns nothing": simple("pass"),
    "decode returns nothing": simple(decode="pass"),
    "decode makes another shape": simple(decode="return (tensors[0][:, :2],)"),
    "decode makes another dtype": simple(decode="return (tensors[0].half(),)"),
    "encode makes what cannot be sent": simple("return (tensors[0].to(torch.complex64),)"),
    "encode makes a meta tensor": simple("return (tensors[0].to('meta'),)"),
    "encode makes too many tensors": simple("return tensors * 17"),
    "encode changes its payload": simple("return (tensors[0].neg_(),)"),
    "encode draws at random": simple("return (tensors[0] + torch.rand(()),)"),
    "decode draws at random": simple(decode="return (tensors[0] + torch.rand(()),)"),
    "encode uses its memory again": simple(
        "return (self.kept.add_(1) if hasattr(self, 'kept') else setattr(self, 'kept', tensors[0] * 1) or self.kept,)"
    ),
    "most_bytes is no number": simple("return (tensors[0].flatten().byte(),)", more="most_bytes = 1.5"),
    "more than most_bytes": simple("return (tensors[0].flatten().byte(),)", more="most_bytes = 7"),
    "most_bytes without bytes": simple(more="most_bytes = 700"),
    "no encode": "class Own:\n    def decode(self, tensors): pass\n",
    "no decode": "class Own:\n    def encode(self, tensors): pass\n",
    "its constructor raises": simple(more="def __init__(self, cut): cut.no"),
    "its constructor wants more": simple(more="def __init__(self, cut, bits): pass"),
    "fits is no static method": simple(more="def fits(self, cut): return True"),
    "pretrained returns no state dict": simple(more="pretrained = staticmethod(lambda: [1])"),
    "pretrained fits another module": simple(
        more="pretrained = staticmethod(lambda: {'layer.weight': torch.zeros(1)})"
    ),
    "it does not import": "import no_such_package_of_this_name\n",
    "it is no Python": "class Own\n",
    "it has no such class": "class Other: pass\n",
    "it is no class": "Own = 7\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_it_is_one_line(text: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    file = written(tmp_path, text)
    with pytest.raises((BackendError, UserError)) as refused:
        codec = at_stem(file)
        codec.decode(codec.encode(payload()), layout(payload()))
    line = str(refused.value)
    assert "\n" not in line
    assert str(file) in line
    assert line.replace(str(file), "own.py") == snapshot


def test_another_layout_of_another_request_is_one_line(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    text = simple("return (tensors[0][tensors[0] > 0],)", "return (torch.zeros(1, 6, 5, 4),)")
    file = written(tmp_path, text)
    codec = at_stem(file)
    codec.encode(payload())
    said = refusal(BackendError, codec.encode, payload(seed=1))
    assert "most_bytes" in said
    assert re.sub(r"float32 \d+", "float32 N", said).replace(str(file), "own.py") == snapshot


def test_on_a_host_its_file_is_named_as_the_user_names_it(tmp_path: Path) -> None:
    text = simple("assert tensors[0].sum() > 0, 'too dark'\n        return tensors")
    codec = at_stem(written(tmp_path, text))
    codec.encode((torch.ones(1, 6, 5, 4),))
    with pytest.raises(BackendError, match=r"^b\.py:\d+: Own\.encode\(\) fails: AssertionError: too dark$"):
        on_a_host(codec, tmp_path).for_cut(1).encode((torch.zeros(1, 6, 5, 4),))


def test_the_documents_example_is_a_codec(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "codecs.md").read_text()
    (text,) = re.findall(r"^    # narrow\.py\n(?:    .*\n|\n(?=    ))+", page, re.MULTILINE)
    codec = made(written(tmp_path, textwrap.dedent(text), "narrow.py"), "Narrow", behind="+zstd")
    assert codec.made is not None and [*codec.made] == [1]
    sent = codec.for_cut(1).encode(payload(2))
    decoded = codec.for_cut(1).decode(sent, layout(payload(2)))
    assert layout(decoded) == layout(payload(2))
    assert all(map(torch.equal, on_a_host(codec, tmp_path).for_cut(1).encode(payload(2)), sent))

from __future__ import annotations

import math
import resource
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import BYTES, Tensors, layout
from pareto.remote.codecs import registry
from pareto.remote.codecs.registry import Codec, parse
from tests.unit.refusals import refusal

COMPRESSED = (
    "zstd",
    "zstd:1",
    "lz4",
    "lz4:9",
    "blosc2",
    "blosc2:zstd:5:bitshuffle",
    "blosc2:lz4:1:noshuffle",
)
LOSSLESS = ("none", *COMPRESSED)
LOSSY = ("fp16", "bf16", "int8", "int8:channel", "uint4", "uint4:channel")
JOINED = ("int8+zstd", "uint4:channel+lz4", "fp16+blosc2", "bf16+zstd:19")
SHAPES = {"map": (2, 5, 7, 3), "vector": (3, 10), "one": (1, 1), "flat": (9,), "scalar": ()}


def payload(*shapes: tuple[int, ...], seed: int = 0) -> Tensors:
    drawn = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=drawn).relu() * 3 - 0.5 for shape in shapes)


def back(text: str, *tensors: torch.Tensor) -> Tensors:
    """What comes of tensors that were encoded and decoded."""
    codec = parse(text)
    return codec.decode(codec.encode(tensors), layout(tensors))


def test_a_codec_has_one_text() -> None:
    same = ("none", "fp16", "int8:channel", "zstd:19", "lz4", "webp:75", "png")
    texts = {text: text for text in (*same, "int8:channel+blosc2:lz4:5:bitshuffle")}
    texts |= {
        "zstd": "zstd:3",
        "blosc2": "blosc2:blosclz:9:shuffle",
        "int8+zstd": "int8+zstd:3",
        "jpeg": "jpeg:90",
    }
    assert {text: parse(text).text for text in texts} == texts
    assert all(parse(canonical) == parse(text) for text, canonical in texts.items())


def test_results_go_through_a_codec_of_their_own() -> None:
    """Behind a slash; all else is said of what payloads go through."""
    codec = parse("int8+zstd/lz4:9")
    assert (codec.text, codec.out, codec.back) == ("int8+zstd:3/lz4:9", parse("int8+zstd"), parse("lz4:9"))
    assert codec.names == codec.out.names
    assert codec.coded_name((7,)) == "int8@7"
    assert codec.at(["uint8"]) == parse("zstd/lz4:9")
    assert codec.at([]) == parse("none")
    plain = parse("none/blosc2")
    assert (plain.names, plain.lossless, plain.back) == ((), True, parse("blosc2"))
    assert parse("file/zstd").file
    own = parse("some/b.py:Bottleneck+zstd/lz4")
    assert (own.text, own.typed) == ("Bottleneck+zstd:3/lz4", f"{Path.cwd()}/some/b.py:Bottleneck+zstd:3/lz4")
    assert parse("some/b.py:Bottleneck").back is None
    assert parse(own.typed) == own


@pytest.mark.parametrize(
    "text",
    ["", "gzip", "zstd:0", "zstd:23", "zstd:", "int8+fp16", "zstd+int8", "none+zstd", "zstd+lz4", "int8++zstd",
     "none/none", "none/int8", "none/fp16+zstd", "/zstd", "zstd/", "none/zstd/lz4",
     "jpeg:0", "jpeg:101", "jpeg+zstd", "int8+png", "png:9",
     "fp16:channel", "blosc2:blosclz", "blosc2:blosclz:9:sort", "lz4:99", "int8 ", "INT8",
     # Nor what cannot stand with a user's own.
     "b.py:B+jpeg", "b.py:B+zstd+int8", "b.py:B+", "b.py:B+c.py:C", "b.py:1B", "b.py:B+none", "Bottleneck"],
)  # fmt: skip
def test_what_is_no_codec_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no codec"):
        parse(text)


def test_the_refusal_says_what_there_is(snapshot: SnapshotAssertion) -> None:
    assert refusal(ValueError, parse, "gzip") == snapshot
    said = refusal(ValueError, parse, "some/b.py")
    assert "b.py:Bottleneck" in said
    assert said == snapshot
    assert "home" in refusal(ValueError, parse, "~nobody_here/b.py:B")


@pytest.mark.parametrize("text", [*LOSSLESS, *LOSSY, *JOINED])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_was_encoded_is_decoded_in_the_same_layout(text: str, shape: tuple[int, ...]) -> None:
    codec, tensors = parse(text), payload(shape, (4, 3))
    encoded = codec.encode(tensors)
    expected = codec.encoded(layout(tensors))
    if expected[0][0] == BYTES:
        ((dtype, (length,)),) = layout(encoded)
        assert dtype == "uint8" and length <= expected[0][1][0]
    else:
        assert layout(encoded) == expected
    decoded = codec.decode(encoded, layout(tensors))
    assert layout(decoded) == layout(tensors)
    if codec.lossless:
        assert all(map(torch.equal, decoded, tensors))


KINDS = [
    f"blosc2{kind}"
    for kind in (":zstd:5:bitshuffle", ":lz4:1:noshuffle", ":lz4hc:0:shuffle", ":zlib:9:shuffle")
]
DTYPES = (torch.uint8, torch.int64, torch.bool, torch.bfloat16, torch.float16)
PAYLOADS: dict[str, Callable[[], Tensors]] = {
    "each dtype": lambda: tuple(payload((3, 40))[0].mul(20).to(dtype) for dtype in DTYPES),
    "scattered memory": lambda: (payload((2, 5, 7, 300))[0].transpose(1, 3), payload((9,))[0][::2]),
    "constants": lambda: tuple(
        torch.full((size,), value) for size in SIZES for value in (0.0, -2.5, math.inf, math.nan)
    ),
    "values": lambda: tuple(payload((size,))[0] for size in SIZES),
    # It fits into what is foreseen, also of many blocks, and of none.
    "noise": lambda: tuple(noise(size) for size in (0, 1, 100_000, 700_000)),
}
SIZES = (1, 3, 33, 5000, 40_000)


def noise(size: int) -> torch.Tensor:
    return torch.randint(256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("text", sorted({*LOSSLESS, *KINDS}))
@pytest.mark.parametrize("tensors", PAYLOADS.values(), ids=PAYLOADS)
def test_without_loss_all_comes_back_to_the_last_bit(text: str, tensors: Callable[[], Tensors]) -> None:
    for tensor in tensors():
        ours, theirs = (each.contiguous().view(torch.uint8) for each in (back(text, tensor)[0], tensor))
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("text", "levels"), [("int8", 255), ("uint4", 15)])
@pytest.mark.parametrize("by_channel", [False, True])
def test_quantised_values_are_off_by_half_a_level_at_most(text: str, levels: int, by_channel: bool) -> None:
    """Equal ones are kept."""
    drawn = payload((2, 6, 11, 5))[0] * torch.tensor([1.0, 10, 0.1, 3, 1e-6, 0]).reshape(1, 6, 1, 1)
    for values in (drawn, *(torch.full((2, 6, 1, 2), value) for value in (2.5, -7.0))):
        (decoded,) = back(f"{text}:channel" if by_channel else text, values)
        over = (0, 2, 3) if by_channel else (0, 1, 2, 3)
        low, high = values.amin(over, keepdim=True).clamp(max=0), values.amax(over, keepdim=True).clamp(min=0)
        step = (high - low) / levels if values is drawn else values.abs() * 1e-5
        assert ((decoded - values).abs() <= 0.502 * step + 1e-9).all()
        assert (decoded[values == 0] == 0).all()


def test_uint4_is_packed_as_documented_and_codecs_send_as_few_bytes_as_they_say() -> None:
    values = (torch.tensor([0.0, 1, 2, 3, 15]),)
    packed, scales = parse("uint4").encode(values)
    assert packed.tolist() == [0 | 1 << 4, 2 | 3 << 4, 15]
    assert scales.tolist() == [[1.0, 0.0]]
    tensors = payload((1, 8, 16, 16))
    sent = {
        text: sum(each.nbytes for each in parse(text).encode(tensors))
        for text in ("fp16", "bf16", "int8", "uint4")
    }
    whole, scales = tensors[0].nbytes, 8
    assert sent == {
        "fp16": whole // 2,
        "bf16": whole // 2,
        "int8": whole // 4 + scales,
        "uint4": whole // 8 + scales,
    }


@pytest.mark.parametrize("text", ["int8", "int8:channel", "uint4", "uint4:channel"])
def test_what_is_not_finite_is_not_quantised_and_what_is_too_small_becomes_zero(text: str) -> None:
    """Their scale has no reciprocal in float32: 0 x infinity would be no number."""
    values = torch.tensor([[1e-43, 0.0, -1e-43], [3e-44, 0.0, 5e-44]])
    assert torch.equal(back(text, values)[0], torch.zeros(2, 3))
    for value in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(BackendError, match="not finite"):
            parse(text).encode((torch.tensor([[1.0, value]]),))


@pytest.mark.parametrize("text", [*LOSSY, *COMPRESSED, *JOINED])
def test_another_layout_is_refused(text: str) -> None:
    codec, tensors = parse(text), payload((2, 5, 7, 3))
    encoded = codec.encode(tensors)
    for wrong in (
        (),
        (*encoded, *encoded),
        (encoded[0].reshape(1, *encoded[0].shape), *encoded[1:]),
        (encoded[0].to(torch.int32), *encoded[1:]),
    ):
        with pytest.raises(BackendError):
            codec.decode(wrong, layout(tensors))


@pytest.mark.parametrize("text", COMPRESSED)
def test_a_frame_that_is_cut_or_too_long_or_a_bomb_is_refused_in_one_line(text: str) -> None:
    codec, tensors = parse(text), payload((2, 5, 7, 3), (4, 3))
    (frame,) = codec.encode(tensors)
    cut = [frame[:length] for length in (0, 3, 4, 20, len(frame) // 2, len(frame) - 1)]
    for wrong in (*cut, torch.cat((frame, frame[:9]))):
        refusal(BackendError, codec.decode, (wrong.clone(),), layout(tensors))
    large, small = (torch.zeros(1 << 22),), (torch.zeros(500),)
    (frame,) = codec.encode(large)
    assert len(frame) < large[0].nbytes // 100
    frame = frame[: codec.encoded(layout(small))[0][1][0]]
    with pytest.raises(BackendError):
        codec.decode((frame,), layout(small))


def test_blosc2_lets_other_threads_send_meanwhile() -> None:
    blosc2 = pytest.importorskip("blosc2")
    blosc2.set_releasegil(False)
    parse("blosc2").encode((torch.zeros(3),))
    assert blosc2.set_releasegil(True)


def _zstd_frame(block: bytes) -> torch.Tensor:
    """A frame that becomes 400 bytes by what it says, with a window of 128 MiB and this block."""
    frame = bytes.fromhex("28b52ffd") + b"\x40" + bytes([17 << 3]) + struct.pack("<H", 400 - 256) + block
    return torch.frombuffer(bytearray(frame), dtype=torch.uint8)


def test_a_zstd_frame_takes_no_window_and_says_its_size() -> None:
    """A library that has not all of a frame makes room for the window that it names: 128 MiB for a few bytes."""
    expected = layout((torch.zeros(100),))
    last_of_zeros = (400 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    (decoded,) = parse("zstd").decode((_zstd_frame(last_of_zeros),), expected)
    assert not decoded.any()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for cut in (last_of_zeros[:-1], last_of_zeros[:2], (400 << 3 | 1).to_bytes(3, "little") + bytes(399)):
        with pytest.raises(BackendError):
            parse("zstd").decode((_zstd_frame(cut),), expected)
    for longer in (last_of_zeros + b"\0", last_of_zeros * 2):
        with pytest.raises(BackendError, match="ends elsewhere"):
            parse("zstd").decode((_zstd_frame(longer),), expected)
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 32 << 20
    zstandard = pytest.importorskip("zstandard")
    writer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    data = writer.compress(bytes(400)) + writer.flush()
    with pytest.raises(BackendError, match="400 were expected"):
        parse("zstd").decode((torch.frombuffer(bytearray(data), dtype=torch.uint8),), expected)


@pytest.mark.parametrize("text", ["zstd:1", "lz4", "blosc2"])
def test_bytes_that_become_less_than_was_expected_are_refused(text: str) -> None:
    codec, short = parse(text), torch.zeros(100)
    with pytest.raises(BackendError, match="came out, 800 were expected"):
        codec.decode(codec.encode((short,)), layout((torch.zeros(200),)))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert Codec("int8+zstd:3").missing == "zstandard"
    assert Codec("int8").missing == ""


@pytest.mark.parametrize("text", [*registry.BITS, *registry.COMPRESSORS, "none"])
def test_what_a_codec_does_to_a_dtype_is_known_beforehand(text: str) -> None:
    """A cell whose codec changes nothing is not measured, so this must be what encoding does."""
    codec = parse(text)
    for dtype in ("float32", "float64", "float16", "bfloat16", "uint8", "int64", "bool"):
        tensor = torch.ones(2, 3, 4, 5).to(getattr(torch, dtype))
        encoded = codec.encode((tensor,))
        changed = len(encoded) != 1 or encoded[0].dtype != tensor.dtype or not torch.equal(encoded[0], tensor)
        assert codec.at({dtype}) == (codec if changed else parse("none")), dtype


def test_only_the_steps_that_change_something_are_at_work() -> None:
    joined = parse("int8+zstd")
    assert joined.at({"uint8"}).text == "zstd:3"
    assert joined.at({"float32", "int64"}) == joined, "a tensor of floats among others is quantised still"
    assert joined.at(()).text == "none", "nothing crosses"
    assert parse("jpeg").at({"uint8"}).text == "jpeg:90"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("/a/b.py:Bottleneck", "Bottleneck"),
        ("/a/b.py:Bottleneck+zstd", "Bottleneck+zstd:3"),
        ("/a+c/b.py:Bottleneck+int8+lz4", "Bottleneck+int8+lz4"),
        ("/a/b.py:int8", "b.int8"),
        ("/a/my codec.py:none+zstd:1", "my_codec.none+zstd:1"),
    ],
)
def test_a_users_own_codec_is_called_by_its_class(text: str, named: str) -> None:
    codec = parse(text)
    assert codec.own is not None
    assert codec.text == named and not codec.lossless and not codec.missing
    assert parse(codec.typed) == codec
    assert parse(named, {codec.own.name}).text == named
    assert codec.lossy.text == named.partition("+zstd")[0].partition("+lz4")[0]


def test_an_own_file_is_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("./b.py:B+zstd").typed == f"{tmp_path}/b.py:B+zstd:3"


def test_users_own_codecs_of_one_name_are_told_apart(snapshot: SnapshotAssertion) -> None:
    typed = ("none", "/a/b.py:B", "/a/c.py:B+zstd:3", "/a/c.py:C", "/a/b.py:B")
    codecs = registry.parse_all(typed)
    assert [codec.text for codec in codecs] == ["none", "b.B", "c.B+zstd:3", "C"]
    assert tuple(codec.typed for codec in codecs) == typed[:-1]
    assert refusal(ValueError, registry.parse_all, ("/a/b.py:B", "/c/b.py:B")) == snapshot

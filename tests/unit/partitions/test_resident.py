"""What a device has in memory: the weights of one stage, those of the next when it changes, never of both."""

import weakref

import pytest
import torch

from pareto.partitions import model as partitions_model
from pareto.partitions import proof, weights
from pareto.partitions.model import ResidentStage
from pareto.partitions.recipe import Recipe
from pareto.protocol.errors import UserError
from tests.unit.gating import gating
from tests.unit.partitions.builders import images
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 64


@pytest.fixture(scope="module", params=gating(["mobilenet_v2", "swin_t"], "swin_t"))
def made(request, tmp_path_factory):
    """A whole model and its weights file."""
    with small(request.param, SIZE) as name:
        file = weights.make(name, "seeded", 7, tmp_path_factory.mktemp("weights")).path
        yield partitions_model.load(Recipe(name), file), file


@pytest.fixture
def resident(tmp_path):
    """Nothing of ResNet18 yet."""
    with small("resnet18", SIZE) as name:
        file = weights.make(name, "seeded", 7, tmp_path)
        yield ResidentStage(partitions_model.outline(Recipe(name)), [file.path])


def tensors_of(stage):
    return [*stage.named_parameters(remove_duplicate=False), *stage.named_buffers(remove_duplicate=False)]


def test_resident_stages_hold_their_own_tensors_and_no_others_and_compute_what_the_whole_computes(made):
    model, file = made
    inputs = images(SIZE)
    (expected,) = proof.reference(model, inputs)
    last = len(model.points) - 1
    edge, server = ResidentStage(model, [file]), ResidentStage(model, [file])
    assert edge.nbytes == 0
    whole = sum(tensor.nbytes for tensor in model.state.values())
    for index in (last // 2, 0, last, 1, last - 1):
        edge.change(0, index)
        server.change(index, last)
        for part, (start, end) in ((edge, (0, index)), (server, (index, last))):
            held = dict(tensors_of(part.stage))
            assert held.keys() == dict(tensors_of(model.stage(start, end))).keys()
            assert len({tensor.data_ptr() for tensor in held.values()}) == len(held)
            assert part.nbytes == sum(tensor.nbytes for tensor in held.values())
        assert edge.nbytes + server.nbytes == whole
        if index in (0, last):
            assert edge.nbytes == (whole if index else 0)
        with torch.inference_mode():
            assert torch.equal(server.stage(edge.stage((inputs,)))[0], expected), index


def test_a_changed_stage_keeps_what_both_need_and_lets_go_of_the_rest_first(resident, monkeypatch):
    it = resident
    it.change(0, 3)
    old = it.stage  # as a thread that is waiting for its next request holds it
    before = {path: tensor.data_ptr() for path, tensor in it._state.items()}
    memory = {path: weakref.ref(tensor.untyped_storage()) for path, tensor in it._state.items()}
    gone_at_reading = {}
    read = weights.Reader.read

    def watched(reader, keys):
        keys = list(keys)
        gone_at_reading.update({path: storage() is None for path, storage in memory.items()})
        read_now.extend(keys)
        return read(reader, keys)

    read_now = []
    monkeypatch.setattr(weights.Reader, "read", watched)
    it.change(2, 5)
    after = {path: tensor.data_ptr() for path, tensor in it._state.items()}
    assert {tensor.data_ptr() for _, tensor in tensors_of(it.stage)} == {*after.values()}
    both = before.keys() & after.keys()
    assert both
    assert all(before[path] == after[path] for path in both)
    assert {*read_now} == after.keys() - both
    left = memory.keys() - both
    assert left
    assert all(gone_at_reading[path] for path in left)
    assert all(tensor.is_meta for _, tensor in tensors_of(old))


def test_a_stage_that_cannot_be_read_leaves_none(resident, tmp_path):
    it = resident
    it.change(0, 2)
    next(tmp_path.glob("*.safetensors")).unlink()
    with pytest.raises(UserError):
        it.change(0, 4)
    assert it.stage.body is None
    it.change(0, 1)  # all of it is there still, and the file is not needed
    assert it.stage.body is not None
    it.change(0, 0)
    assert it.nbytes == 0


def test_a_resident_stage_refuses_a_file_of_another_model_at_once(tmp_path):
    file = weights.make("squeezenet1_1", "seeded", 7, tmp_path)
    with pytest.raises(UserError, match="resnet18"):
        ResidentStage(partitions_model.outline(Recipe("resnet18")), [file.path])


def test_a_marked_stage_computes_the_same_and_calls_between_its_units(resident):
    model = resident._outline
    resident.change(1, 5)
    payload = tuple(
        torch.rand(spec.shape, generator=torch.Generator().manual_seed(1)) for spec in model.points[1].payload
    )
    called = []

    with torch.inference_mode():
        expected = resident.stage(payload)
        for units, marks in ((False, 2), (True, 5)):
            with resident.marked(lambda: called.append(None), units=units) as marked:
                called.clear()
                result = marked(payload)
                assert len(called) == marks
                assert [one.data_ptr() for one in marked.parameters()] == [
                    one.data_ptr() for one in resident.stage.parameters()
                ]
            assert all(map(torch.equal, result, expected))
            assert {tensor.device.type for tensor in marked.parameters()} == {"meta"}, (
                "it lets go of the weights"
            )
        assert all(map(torch.equal, resident.stage(payload), expected))

"""What a codec costs, on cases whose figures are made by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pareto.analysis.schema import TRIALS
from pareto.partitions import quality
from pareto.partitions.quality import Boxes

NAN, INF = math.nan, math.inf


def logits(*tops: int, classes: int = 3) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(tops), classes).float()


def seen(*boxes: tuple[float, float, float, float, float, int]) -> Boxes:
    """Boxes of left, top, right, bottom, score and class."""
    table = torch.tensor(boxes, dtype=torch.float64).reshape(-1, 6)
    return Boxes(table[:, :4], table[:, 4], table[:, 5].long())


def compared(
    outputs: list[Tensor], references: list[Tensor], labels: list[Tensor] | None = None, task: str = ""
) -> quality.Quality:
    comparison = quality.Comparison(task)
    for number, pair in enumerate(zip(outputs, references, strict=True)):
        answers = (quality.Answers.of([each], task) for each in pair)
        comparison.add(*answers, None if labels is None else labels[number])
    return comparison.quality()


def agreement(outputs: Tensor, references: Tensor) -> float | None:
    return compared([outputs], [references]).agreement


def relative_error(outputs: list[Tensor], references: list[Tensor]) -> float | None:
    comparison = quality.Comparison()
    comparison.add(quality.Answers.of(outputs), quality.Answers.of(references))
    return comparison.quality().output_error


def mean_iou(outputs: Tensor, references: Tensor) -> float | None:
    return compared([outputs], [references], task="segmentation").mean_iou


def test_agreement_is_the_share_of_equal_tops() -> None:
    assert agreement(logits(0, 1, 2, 2), logits(0, 1, 1, 2)) == 0.75
    assert agreement(7 * logits(0, 1) - 3, logits(0, 1)) == 1.0
    assert agreement(torch.zeros(2, 3), logits(0, 1)) == 0.5, "of equal logits the first is the top"
    broken = logits(0, 1)
    broken[0, 0] = NAN
    assert agreement(broken, broken) == 0.5, "what is no number agrees with nothing"
    made = compared([broken], [logits(0, 1)])
    assert (made.output_error, made.agreement) == (None, 0.5)
    assert agreement(torch.empty(0, 3), torch.empty(0, 3)) is None
    assert agreement(torch.zeros(3), torch.zeros(3)) is None, "it is of classes"
    with pytest.raises(ValueError, match=r"\(2, 3\) is not \(1, 3\)"):
        agreement(logits(0, 1), logits(0))

    # The relative error is of L2 norms.
    def of(outputs: list[list[float]], references: list[list[float]]) -> float | None:
        return relative_error([*map(torch.tensor, outputs)], [*map(torch.tensor, references)])

    assert of([[3.0, 4.0]], [[3.0, 4.0]]) == of([[0.0]], [[0.0]]) == 0
    assert of([[3.0, 4.5]], [[3.0, 4.0]]) == pytest.approx(0.1)
    assert of([[3.0], [4.5]], [[3.0], [4.0]]) == pytest.approx(0.1), "all tensors together"
    unknown = ((1.0, 0.0), (NAN, 1.0), (INF, INF), (1.0, NAN))
    assert {of([[one]], [[other]]) for one, other in unknown} == {None}
    with pytest.raises(ValueError, match="1 outputs are not 2"):
        of([[0.0]], [[0.0]] * 2)
    with pytest.raises(ValueError, match="not"):
        relative_error([torch.zeros(1)], [torch.zeros(1, 1)])
    reference = torch.full((1000,), 6e4, dtype=torch.float16)  # half precision does not overflow
    assert relative_error([reference / 2], [reference]) == pytest.approx(0.5)


def segmented(*rows: tuple[int, ...], classes: int = 3) -> Tensor:
    """Logits (1, classes, height, width) of a map of classes."""
    return torch.nn.functional.one_hot(torch.tensor(rows), classes).permute(2, 0, 1)[None].float()


def test_mean_iou_is_over_the_classes_that_either_has_and_the_pixels_of_all_images() -> None:
    truth = segmented((0, 0), (1, 1))
    assert mean_iou(truth, truth) == 1.0
    # Class 0: 1 of 2. Class 1: 2 of 3. Class 2 is nowhere.
    assert mean_iou(segmented((0, 1), (1, 1)), truth) == pytest.approx((1 / 2 + 2 / 3) / 2)
    # Class 2 is only in the output: 0 of 1.
    assert mean_iou(segmented((0, 2), (1, 1)), truth) == pytest.approx((1 / 2 + 1 + 0) / 3)
    one, *others = (segmented(row) for row in ((0, 0, 0, 0), (0, 1, 1, 1), (1, 1, 1, 1)))
    truth, output = (torch.cat((one, other)) for other in others)
    assert mean_iou(output, truth) == pytest.approx((4 / 5 + 3 / 4) / 2)
    assert mean_iou(logits(0), logits(0)) is None
    assert mean_iou(torch.empty(0, 3, 2, 2), torch.empty(0, 3, 2, 2)) is None


A = (0.0, 0.0, 10.0, 10.0)
NEAR_A = (0.0, 0.0, 10.0, 6.0)  # overlaps A by 0.6
FAR_FROM_A = (0.0, 0.0, 10.0, 4.0)  # by 0.4
B = (20.0, 20.0, 30.0, 30.0)

TRUTH = [seen((*A, 0.9, 0), (*B, 0.8, 0))]


@pytest.mark.parametrize(
    ("outputs", "precision"),
    [
        ([seen((*A, 0.9, 0), (*B, 0.8, 0))], 1.0),
        ([seen((*A, 0.1, 0), (*B, 0.2, 0))], 1.0),  # only the order of scores counts
        ([seen()], 0.0),
        ([seen((*A, 0.9, 1), (*B, 0.8, 1))], 0.0),  # of another class
        ([seen((*NEAR_A, 0.9, 0), (*B, 0.8, 0))], 1.0),
        ([seen((*FAR_FROM_A, 0.9, 0), (*B, 0.8, 0))], 0.25),  # precision 1/2 from recall 0 to 1/2
        ([seen((*A, 0.9, 0))], 0.5),
        # A second box on A is wrong. Before B: 1/2 x 1 + 1/2 x 2/3.
        ([seen((*A, 0.9, 0), (*NEAR_A, 0.85, 0), (*B, 0.8, 0))], 1 / 2 + 1 / 3),
        ([seen((*A, 0.9, 0), (*B, 0.8, 0), (*NEAR_A, 0.7, 0))], 1.0),
        # The better score is first, though it overlaps less.
        ([seen((*A, 0.85, 0), (*NEAR_A, 0.9, 0), (*B, 0.8, 0))], 1 / 2 + 1 / 3),
    ],
)
def test_average_precision_of_one_class(outputs: list[Boxes], precision: float) -> None:
    assert quality.mean_average_precision(outputs, TRUTH) == pytest.approx(precision)


def test_average_precision_is_over_all_images_and_the_mean_over_the_classes_of_the_truth() -> None:
    truth = [seen((*A, 0.9, 0), (*B, 0.9, 1)), seen((*A, 0.9, 0))]
    # Class 0: of two images the wrong box scores best: 1/2 and 2/3, made monotonous 2/3. Class 1 is missing.
    outputs = [seen((*A, 0.7, 0)), seen((*B, 0.9, 0), (*A, 0.6, 0), (*B, 0.9, 2))]
    assert quality.mean_average_precision(outputs, truth) == pytest.approx((2 / 3 + 0) / 2)
    # Average precision takes an overlap of just half and needs something seen.
    half, truth = (0.0, 0.0, 10.0, 5.0), [seen((*A, 1, 0))]
    assert quality.mean_average_precision([seen((*half, 1, 0))], truth) == 1.0
    assert math.isnan(quality.mean_average_precision(truth, [seen()]))
    with pytest.raises(ValueError, match="2 images"):
        quality.mean_average_precision([seen(), seen()], [seen()])
    # Overlaps.
    boxes = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3], [5, 5, 6, 6], [1, 1, 1, 1]])
    expected = [[1, 1 / 7, 0, 0], [1 / 7, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert quality.overlaps(boxes, boxes).tolist() == [pytest.approx(row) for row in expected]


def test_boxes_of_yolo() -> None:
    """Five places: A, beside it a weaker box, the same of another class, a weak one, and B."""
    outputs = torch.tensor(
        [
            # centre x, y, width, height, scores of two classes
            [5.0, 5.0, 10.0, 10.0, 0.8, 0.1],
            [5.0, 3.5, 10.0, 7.0, 0.7, 0.1],
            [5.0, 5.0, 10.0, 10.0, 0.1, 0.6],
            [50.0, 50.0, 4.0, 4.0, 0.2, 0.1],
            [25.0, 25.0, 10.0, 10.0, 0.9, 0.1],
        ]
    ).T[None]
    (best,) = quality.boxes(outputs)
    assert best.corners.tolist() == [list(B), list(A), list(A)]
    assert best.classes.tolist() == [0, 0, 1]
    assert best.scores.tolist() == pytest.approx([0.9, 0.8, 0.6])
    assert quality.mean_average_precision([best], [best]) == 1.0
    (none,) = quality.boxes(outputs, score=0.95)
    assert none.corners.shape == (0, 4)
    # The best of very many boxes are kept.
    side = 120
    at = torch.arange(side * side)
    centres = torch.stack((20.0 * (at % side), 20.0 * (at // side)))
    scores = torch.linspace(0.3, 0.9, len(at))
    outputs = torch.cat((centres, torch.full((2, len(at)), 10.0), scores[None]))[None]
    (found,) = quality.boxes(outputs)
    assert len(found.scores) == quality.MOST_CANDIDATES
    assert found.scores.min() > scores[-quality.MOST_CANDIDATES - 1]


def test_batches_together_give_what_one_gives() -> None:
    drawn = torch.Generator().manual_seed(1)
    whole = [torch.randn(3, 5, generator=drawn) for _ in range(3)]
    ours = [each + torch.randn(3, 5, generator=drawn) for each in whole]
    labels = [torch.tensor([0, 1, 2])] * 3
    made = compared(ours, whole, labels)
    assert made.images == 9
    assert made.agreement == agreement(torch.cat(ours), torch.cat(whole))
    assert made.output_error == pytest.approx(relative_error([torch.cat(ours)], [torch.cat(whole)]))
    assert made.top1 == float((torch.cat(ours).argmax(1) == torch.cat(labels)).double().mean())
    assert [len(made.changed), sum(made.changed)] == [9, round(9 * (1 - made.agreement))]
    assert made.mean_iou is made.map50 is None
    assert compared(ours, whole).top1 is None, "without labels"
    # A segmentation has the IoU of its pixels and no classes.
    whole = [torch.randn(2, 4, 6, 6, generator=drawn) for _ in range(2)]
    ours = [each + 0.5 * torch.randn(2, 4, 6, 6, generator=drawn) for each in whole]
    made = compared(ours, whole, task="segmentation")
    assert made.mean_iou == pytest.approx(mean_iou(torch.cat(ours), torch.cat(whole)))
    assert made.agreement is made.map50 is made.top1 is None
    assert made.changed == ()
    assert compared(whole, whole).mean_iou is None, "of an image no pixel's class is known"

    # A detector has the precision of its boxes.
    def boxes(*scores: float) -> Tensor:
        """One image with boxes of 10 x 10 beside each other, of class 0, as YOLO has them."""
        places = [[20.0 * number, 0.0, 10.0, 10.0, score, 0.0] for number, score in enumerate(scores)]
        return torch.tensor(places).T[None]

    whole = [boxes(0.9, 0.8, 0.1), boxes(0.7)]
    assert compared(whole, whole, task="detection").map50 == 1.0
    made = compared([boxes(0.9, 0.1, 0.1), boxes(0.7)], whole, task="detection")
    assert made.map50 == pytest.approx(2 / 3), "two of three boxes are seen, and nothing else"
    assert made.agreement is made.mean_iou is None
    nothing = [boxes(0.1), boxes(0.2)]
    assert compared(nothing, nothing, task="detection").map50 is None, "the whole model saw nothing"
    # A row has marks of the images.
    ours, whole = logits(0, 1, 2, 0, 1), logits(0, 1, 1, 1, 1)
    columns = compared([ours], [whole], [torch.tensor([1, 1, 1, 1, 1])]).columns()
    assert columns == {
        "output_error": pytest.approx(0.894427), "mean_iou": None, "map50": None,
        "agreement": 0.6, "agreement_images": 5, "top1": 0.4, "top1_images": 5,
        "changed_images": "30", "wrong_images": "b0",
    }  # fmt: skip
    many = quality.Quality(5000, 0.0, 1.0, changed=(False,) * 5000)
    assert many.columns()["changed_images"] is None, "too many for a cell"
    assert columns.keys() | {"changed_images"} <= {*TRIALS.columns}

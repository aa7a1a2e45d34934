import numpy as np
import pytest
import torch

from lightning_fedhpo.data.labelled_images import LabelledImages


def test_grey_and_coloured_images_become_floats_with_the_channels_first():
    grey = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 15
    x, y = LabelledImages(grey, np.array([1, 0], "uint8"), "here").tensors(channels=1, size=3, classes=2)
    assert (x.dtype, y.dtype, y.tolist(), x.is_contiguous()) == (torch.float32, torch.int64, [1, 0], True)
    assert torch.equal(x[:, 0], torch.tensor(grey / 255.0, dtype=torch.float32))
    colours = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), dtype=np.uint8)
    x, _ = LabelledImages(colours, np.zeros(2, int), "here").tensors(channels=3, size=4, classes=1)
    assert torch.equal(x, torch.tensor(colours.transpose(0, 3, 1, 2) / 255.0, dtype=torch.float32))


def test_the_middle_is_kept_and_colours_turn_grey():
    images = np.zeros((1, 6, 8), np.uint8)
    images[0, 2:4, 3:5] = [[255, 0], [0, 51]]
    x, _ = LabelledImages(images, np.zeros(1, int), "here").tensors(channels=1, size=2, classes=1)
    assert x.tolist() == [[[[1.0, 0.0], [0.0, pytest.approx(0.2)]]]]
    images = np.array([[[[255, 0, 0]]], [[[0, 255, 0]]], [[[0, 0, 255]]], [[[255, 255, 255]]]], np.uint8)
    x, _ = LabelledImages(images, np.zeros(4, int), "here").tensors(channels=1, size=1, classes=1)
    assert x.flatten().tolist() == pytest.approx([0.299, 0.587, 0.114, 1.0])


@pytest.mark.parametrize(
    ("images", "labels", "rule"),
    [
        (np.zeros((2, 4, 4)), np.zeros(2, int), "images must be bytes .* here has float64 of shape .2, 4, 4."),
        (np.zeros((2, 3, 4, 4), "uint8"), np.zeros(2, int), "here has uint8 of shape .2, 3, 4, 4."),
        (np.zeros((2, 4, 4), "uint8"), np.zeros(3, int), "here has 2 images and labels of int64 of shape .3,."),
        (np.zeros((2, 4, 4), "uint8"), np.zeros(2), "labels of float64"),
    ],
)
def test_other_arrays_are_refused(images: np.ndarray, labels: np.ndarray, rule: str):
    with pytest.raises(ValueError, match=rule):
        LabelledImages(images, labels, "here")


def test_labels_sizes_and_channels_must_fit():
    part = LabelledImages(np.zeros((4, 6, 8), np.uint8), np.array([0, 12, -1, 10]), "here")
    with pytest.raises(ValueError, match="labels must be from 0 to 9, here has unknown classes: -1, 10, 12"):
        part.tensors(channels=1, size=6, classes=10)
    with pytest.raises(ValueError, match="`size` must be at most that of the images, got 7, here has 6x8"):
        part.tensors(channels=1, size=7, classes=20)
    with pytest.raises(ValueError, match="images with 3 channels are needed, those of here are grey"):
        part.tensors(channels=3, size=6, classes=20)

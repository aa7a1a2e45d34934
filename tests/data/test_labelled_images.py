import numpy as np
import pytest
import torch

from lightning_fedhpo.data.labelled_images import LabelledImages


def test_grey_images_become_floats_of_one_channel():
    images = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 15
    x, y = LabelledImages(images, np.array([1, 0], "uint8"), "here").tensors(channels=1, size=3, classes=2)
    assert x.dtype == torch.float32 and y.dtype == torch.int64 and y.tolist() == [1, 0]
    assert torch.equal(x[:, 0], torch.tensor(images / 255.0, dtype=torch.float32))
    assert x.is_contiguous()


def test_colours_come_first():
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), dtype=np.uint8)
    x, _ = LabelledImages(images, np.zeros(2, int), "here").tensors(channels=3, size=4, classes=1)
    assert x.shape == (2, 3, 4, 4) and x.is_contiguous()
    for channel in range(3):
        assert torch.equal(x[:, channel], torch.tensor(images[..., channel] / 255.0, dtype=torch.float32))


def test_the_middle_is_kept():
    images = np.zeros((1, 6, 8), np.uint8)
    images[0, 2:4, 3:5] = [[255, 0], [0, 51]]
    x, _ = LabelledImages(images, np.zeros(1, int), "here").tensors(channels=1, size=2, classes=1)
    assert x.tolist() == [[[[1.0, 0.0], [0.0, pytest.approx(0.2)]]]]


def test_coloured_images_turn_grey():
    images = np.array([[[[255, 0, 0]]], [[[0, 255, 0]]], [[[0, 0, 255]]], [[[255, 255, 255]]]], np.uint8)
    x, _ = LabelledImages(images, np.zeros(4, int), "here").tensors(channels=1, size=1, classes=1)
    assert x.shape == (4, 1, 1, 1)
    assert x.flatten().tolist() == pytest.approx([0.299, 0.587, 0.114, 1.0])


@pytest.mark.parametrize(
    ("images", "labels", "rule"),
    [
        (np.zeros((2, 4, 4)), np.zeros(2, int), "images must be bytes .* here has float64 of shape .2, 4, 4."),
        (np.zeros((2, 16), "uint8"), np.zeros(2, int), "here has uint8 of shape .2, 16."),
        (np.zeros((2, 3, 4, 4), "uint8"), np.zeros(2, int), "here has uint8 of shape .2, 3, 4, 4."),
        (np.zeros((2, 4, 4), "uint8"), np.zeros(3, int), "here has 2 images and labels of int64 of shape .3,."),
        (np.zeros((2, 4, 4), "uint8"), np.zeros(2), "labels of float64"),
        (np.zeros((2, 4, 4), "uint8"), np.zeros((2, 2), int), "labels of int64 of shape .2, 2."),
    ],
)
def test_what_are_no_labelled_images_is_refused(images: np.ndarray, labels: np.ndarray, rule: str):
    with pytest.raises(ValueError, match=rule):
        LabelledImages(images, labels, "here")


def test_what_cannot_be_made_of_them_is_refused():
    part = LabelledImages(np.zeros((4, 6, 8), np.uint8), np.array([0, 12, -1, 10]), "here")
    with pytest.raises(ValueError, match="labels must be from 0 to 9, here has unknown classes: -1, 10, 12"):
        part.tensors(channels=1, size=6, classes=10)
    with pytest.raises(ValueError, match="`size` must be at most that of the images, got 7, here has 6x8"):
        part.tensors(channels=1, size=7, classes=20)
    with pytest.raises(ValueError, match="images with 3 channels are needed, those of here are grey"):
        part.tensors(channels=3, size=6, classes=20)

from pathlib import Path

import numpy as np
import pytest

from lightning_fedhpo.data.image_folder import read_image_folder

image = pytest.importorskip("PIL.Image")


def save(path: Path, pixels: np.ndarray) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path)
    return pixels


def grey(number: int, size: int = 6) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (size, size), dtype=np.uint8)


def test_a_label_is_the_place_of_its_folder(tmp_path: Path):
    names = "hbgeacfd"
    written = {name: save(tmp_path / "train/shirt" / f"{name}.png", grey(n)) for n, name in enumerate(names)}
    shirt = [written[name] for name in sorted(names)]
    bag = save(tmp_path / "train/bag/z.PNG", grey(5))
    tested = save(tmp_path / "test/shirt/t.png", grey(7))
    (tmp_path / "train/bag/notes.txt").write_text("no image")
    (tmp_path / "train/.cache").mkdir()
    parts = read_image_folder(tmp_path, channels=1)
    assert parts["train"].labels.tolist() == [0] + [1] * 8  # bag, shirt
    assert np.array_equal(parts["train"].images, np.stack([bag, *shirt]))
    assert parts["test"].labels.tolist() == [1] and np.array_equal(parts["test"].images[0], tested)


def test_images_are_read_with_as_many_channels_as_are_asked_for(tmp_path: Path):
    colours = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    save(tmp_path / "train/a/0.png", colours)
    save(tmp_path / "train/b/0.png", grey(1))
    images = read_image_folder(tmp_path, channels=3, test=False)["train"].images
    assert np.array_equal(images[0], colours)
    assert np.array_equal(images[1], np.repeat(grey(1)[..., None], 3, axis=2))
    images = read_image_folder(tmp_path, channels=1, test=False)["train"].images
    assert np.abs(images[0] - colours @ [0.299, 0.587, 0.114]).max() <= 1  # rounding
    assert np.array_equal(images[1], grey(1))


def test_a_class_that_only_the_test_has_is_unknown(tmp_path: Path):
    save(tmp_path / "train/a/0.png", grey(0))
    save(tmp_path / "test/a/0.png", grey(1))
    save(tmp_path / "test/q/0.png", grey(2))
    with pytest.raises(ValueError, match="has unknown classes: q"):
        read_image_folder(tmp_path, channels=1)


def test_what_is_missing_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="needs train/ with a folder for each class"):
        read_image_folder(tmp_path, channels=1)
    (tmp_path / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="must hold a folder for each class, it holds none"):
        read_image_folder(tmp_path, channels=1)
    (tmp_path / "train/a").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no images in the folders of .*train: looked for \*.png, "):
        read_image_folder(tmp_path, channels=1, test=False)
    save(tmp_path / "train/a/0.png", grey(0))
    with pytest.raises(FileNotFoundError, match="needs test/ with a folder for each class"):
        read_image_folder(tmp_path, channels=1)


def test_images_of_several_sizes_are_refused(tmp_path: Path):
    save(tmp_path / "train/a/0.png", grey(0))
    save(tmp_path / "train/a/1.png", grey(0, size=7))
    with pytest.raises(ValueError, match=r"0.png has \(6, 6\), .*1.png has \(7, 7\): resize them"):
        read_image_folder(tmp_path, channels=1, test=False)


def test_a_truncated_image_is_named(tmp_path: Path):
    save(tmp_path / "train/a/0.png", grey(0, size=64))
    file = tmp_path / "train/a/0.png"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"0.png is no image, or damaged"):
        read_image_folder(tmp_path, channels=1, test=False)

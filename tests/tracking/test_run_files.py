import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_fedhpo.files.table import Table
from lightning_fedhpo.run.evaluation import Evaluation
from lightning_fedhpo.testing import toy_run
from lightning_fedhpo.tracking.run_files import build_summary, json_value


def test_plain_is_json():
    assert json_value({1: (math.nan, math.inf, -math.inf, 0.5)}) == {"1": [None, None, None, 0.5]}
    assert json_value([torch.tensor([1.0, math.nan]), None, True, Path("a")]) == [[1.0, None], None, True, "a"]
    found = json_value([np.float32(2.0), np.int64(3), np.bool_(True)])
    assert json.dumps(found, allow_nan=False) == "[2.0, 3, true]"


def test_a_summary_of_a_run():
    fed, _, _ = toy_run(2, executor="sequential")
    assert build_summary(fed.result, None, seconds=0.0, seed=0)["test"] is None
    clients = Table({"client": [0, 4], "examples": [3, 1], "global/acc": [1.0, 0.0], "personalized/acc": [1.0, 0.6]})
    summary = build_summary(fed.result, Evaluation(clients), seconds=1.23456, seed=7, resumed_from=None)
    assert {"best", "test", "ledger", "arms", "seconds", "seed", "versions"} <= set(summary)
    assert summary["test"]["global"] == {"acc": 0.75}
    assert summary["test"]["personalized"] == {"acc": pytest.approx(0.9)}
    assert summary["test"]["clients"] == 2
    assert summary["test"]["distribution"]["global"]["acc"]["mean"] == 0.5
    assert summary["seconds"] == 1.235 and summary["seed"] == 7
    assert summary["ledger"]["client_updates"] == 2 * 3
    assert summary["arms"][0]["rounds"] == 2
    assert torch.__version__.startswith(summary["versions"]["torch"])  # which may add what it was built for
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary

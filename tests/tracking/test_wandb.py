"""Weights & Biases offline, online with everything broken, and absent: the run goes on in all cases."""

import http.server
import threading
import warnings
from pathlib import Path

import pytest

from lightning_fedhpo.tracking import wandb as tracking
from lightning_fedhpo.tracking.wandb import logged_in, obstacle, server, wandb_logger
from tests.runs import quiet_surroundings  # noqa: F401 - the fixture is used unasked

KEY = "0123456789" * 4  # has the form of a key and opens nothing
NOBODY = "http://127.0.0.1:9"  # the port of a service that no longer exists


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's, where nobody is logged in."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


class FakeRun:
    """Has of a run what the logger uses; fails from a call on."""

    project, name, id, url, dir = "fedhpo", "name", "id", "https://somewhere/run", "files"

    def __init__(self, good: int = 1000, offline: bool = False) -> None:
        self.offline, self._good = offline, good
        self.calls: list[str] = []
        self.summary: dict[str, object] = {}

    def log(self, *arguments: object, call: str = "log", **options: object) -> None:
        self.calls.append(call)
        if len(self.calls) > self._good:
            raise BrokenPipeError("the service is gone")

    def finish(self, exit_code: int) -> None:
        self.log(call=f"finish {exit_code}")


@pytest.fixture
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no run of W&B's, which takes seconds."""
    monkeypatch.setattr(tracking, "_start", lambda mode, options: FakeRun(offline=mode == "offline"))


def test_offline_without_a_login(tmp_path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger = wandb_logger(tmp_path / "run")
    assert logger is not None
    logger.log_hyperparams({"seed": 3})
    logger.log_metrics({"round": 0.0, "val_loss": 0.5}, step=4)
    assert "wandb sync" in logger.whereabouts and str(tmp_path / "run") in logger.whereabouts
    run = logger.experiment
    logger.conclude({"best": {"client": {"lr": 0.1}}})
    assert run.config["seed"] == 3
    assert len(list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))) == 1


@pytest.mark.parametrize("mode", ["auto", "online"])
@pytest.mark.usefixtures("no_service")
def test_online_with_a_server_out_of_reach_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", NOBODY)
    if mode == "auto":
        monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.warns(UserWarning, match="127.0.0.1:9 cannot be reached .*; the run is logged offline") as caught:
        logger = wandb_logger(tmp_path, mode=mode)
    assert len(caught) == 1 and logger is not None and logger.experiment.offline


@pytest.mark.usefixtures("no_service")
def test_online_without_a_login_asks_nobody(tmp_path: Path):
    with pytest.warns(UserWarning, match="nobody is logged in .`wandb login` does it.; the run is logged offline"):
        logger = wandb_logger(tmp_path, mode="online")
    assert logger is not None and logger.experiment.offline


def test_a_server_that_refuses_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - the base class's name
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{refusing.server_address[1]}")
        assert obstacle() == ""
        with pytest.warns(UserWarning, match="did not start online .*; the run is logged offline"):
            logger = wandb_logger(tmp_path, mode="online")
        refusing.shutdown()
    assert logger is not None and logger.experiment.offline
    logger.conclude(None)


def test_without_any_working_service_there_is_no_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*arguments: object) -> None:
        raise OSError("no service\nand more about it")

    monkeypatch.setattr(tracking, "_start", broken)
    with pytest.warns(UserWarning, match="did not start offline .no service.; the run goes on without it"):
        assert wandb_logger(tmp_path) is None


def test_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert wandb_logger(tmp_path, mode="disabled") is None
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert wandb_logger(tmp_path) is None
    with pytest.raises(ValueError, match="`mode` must be one of 'auto', 'online', 'offline', 'disabled', got 'on'"):
        wandb_logger(tmp_path, mode="on")


def test_a_service_that_dies_in_the_middle_stops_nothing():
    run = FakeRun(good=2)
    logger = tracking.ForgivingWandbLogger(run, "folder")
    logger.log_metrics({"round": 0.0})
    logger.log_metrics({"round": 1.0})
    with pytest.warns(UserWarning, match="failed .the service is gone.: the run goes on without it") as caught:
        for number in range(2, 6):
            logger.log_metrics({"round": float(number)})
        logger.conclude({"best": {}})
    assert len(caught) == 1
    assert run.calls == ["log"] * 3


def test_the_end_is_told_once():
    run = FakeRun()
    logger = tracking.ForgivingWandbLogger(run, "folder")
    assert logger.whereabouts == "Weights & Biases has it at https://somewhere/run"
    logger.conclude({"score": 0.5})
    logger.conclude(None, failed=True)
    logger.log_metrics({"round": 9.0})
    assert run.calls == ["finish 0"] and run.summary == {"score": 0.5}


def test_a_login_is_found_in_the_environment_and_in_netrc(home: Path, monkeypatch: pytest.MonkeyPatch):
    assert not logged_in()
    netrc = home / ".netrc"
    netrc.write_text(f"machine elsewhere.example\n login user\n password {KEY}\n")
    netrc.chmod(0o600)
    assert not logged_in()
    with netrc.open("a") as file:
        file.write(f"machine api.wandb.ai\n login user\n password {KEY}\n")
    assert logged_in()
    netrc.write_text("machine")
    assert not logged_in()
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert logged_in()


def test_the_server_is_the_users(home: Path, monkeypatch: pytest.MonkeyPatch):
    assert server() == "https://api.wandb.ai"
    settings = home / ".config" / "wandb" / "settings"
    settings.parent.mkdir(parents=True)
    settings.write_text("[default]\nbase_url = https://wandb.example.org\n")
    assert server() == "https://wandb.example.org"
    settings.write_text("no section\n")
    assert server() == "https://api.wandb.ai"
    monkeypatch.setenv("WANDB_BASE_URL", NOBODY)
    assert server() == NOBODY


def test_behind_a_proxy_nobody_knocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", NOBODY)
    assert "cannot be reached" in obstacle()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert obstacle() == ""

"""Every arm and grid point resolves to known levers with valid settings, and says what the peer's own defaults are."""

from __future__ import annotations

import inspect

import pytest

from benchmarks import arms, foreign, grid, rounds
from ironlaw.records import Form
from ironlaw.registry import levers

EVERY = {
    **{f"arm {name} ({p})": steps for p in ("bf16", "fp32") for name, steps in arms.arms(p).items()},
    **{f"grid {name}": steps for name, steps in grid.points().items()},
}


@pytest.mark.parametrize("name", EVERY)
def test_steps_resolve_and_end_on_one_target(name):
    plan = rounds.plan_of(EVERY[name])
    assert [step.lever for step in plan.steps] == [lever for lever, _ in EVERY[name]]
    for step, (lever, settings) in zip(plan.steps, EVERY[name], strict=True):
        full = dict(step.settings)
        assert settings.items() <= full.items()
        assert levers()[lever].Settings(**full) == levers()[lever].Settings(**settings)
        assert step.version == levers()[lever].version
    targets = {levers()[lever].target for lever, _ in EVERY[name]} - {""}
    assert len(targets) <= 1


def test_an_unknown_lever_or_setting_is_refused():
    with pytest.raises(KeyError):
        rounds.plan_of([("no_such_lever", {})])
    with pytest.raises(TypeError):
        rounds.plan_of([("threads", {"cores": 2})])


def test_plans_that_differ_have_keys_of_their_own():
    points = grid.points()
    assert len({rounds.plan_of(steps).key("x") for steps in points.values()}) == len(points)


def test_the_grid_crosses_every_base_with_both_thread_counts_but_the_plain_baseline():
    assert len(grid.points()) == 2 * len(grid.BASES) - 1
    assert set(grid.QUICK) <= set(grid.points())
    assert grid.points()["onnxruntime, 1 thread"] == [
        ("runtime", {"target": "onnxruntime"}),
        ("threads", {"threads": 1}),
    ]


def test_onnx_runtime_int8_has_the_settings_of_its_own_function():
    quantization = pytest.importorskip("onnxruntime.quantization")
    theirs = {n: p.default for n, p in inspect.signature(quantization.quantize_static).parameters.items()}
    ((_, ours),) = arms.arms("fp32")["ONNX Runtime int8"]
    assert ours["per_channel"] == theirs["per_channel"]
    assert {"s8": "QInt8", "u8": "QUInt8"}[str(ours["activation"])] == theirs["activation_type"].name
    assert str(ours["calibration"]) == theirs["calibrate_method"].name.lower()
    assert theirs["weight_type"].name == "QInt8"
    assert theirs["op_types_to_quantize"] is None
    assert ours["scope"] == "all"


@pytest.mark.openvino
def test_nncf_int8_has_the_settings_of_its_own_function():
    nncf = pytest.importorskip("nncf")
    theirs = {n: p.default for n, p in inspect.signature(nncf.quantize).parameters.items()}
    (_, ours), *_ = arms.arms("fp32")["NNCF int8"]
    assert ours["fast_bias"] == theirs["fast_bias_correction"]
    assert ours["rows"] == theirs["subset_size"]
    assert theirs["preset"] is None  # which it documents as PERFORMANCE for models that are no transformers
    assert ours["preset"] == "performance"


def test_openvino_runs_the_precision_that_it_takes_by_itself():
    assert arms.arms("bf16")["OpenVINO"] == [("bf16_openvino", {})]
    assert arms.arms("fp32")["OpenVINO"] == [("runtime", {"target": "openvino"})]
    assert arms.arms("bf16")["NNCF int8"][-1] == ("bf16_openvino", {})
    assert arms.openvino_precision() in ("bf16", "fp32")


def test_an_arm_gets_the_batch_of_the_tuned_point():
    steps = arms.arms("fp32")[arms.ONNX_ARM]
    assert arms.at_batch(steps, 1, 1) == steps
    assert arms.at_batch(steps, 16, 1) == [*steps, ("batch", {"batch": 16})]


def test_quick_arms_and_the_fallback_are_arms():
    assert {*arms.QUICK, arms.EAGER, arms.ONNX_ARM} <= set(arms.arms("fp32"))


@pytest.mark.parametrize("name", foreign.PEERS)
def test_foreign_peers_name_a_script_and_a_target_for_what_they_give(name):
    peer = foreign.PEERS[name]
    assert (foreign.ROOT / "benchmarks" / "peer_scripts" / peer.script).is_file()
    assert peer.target == {Form.ONNX: "onnxruntime", Form.EAGER: "torch"}[peer.gives]
    assert name not in arms.arms("fp32")


# ------------------------------------------------------------ foreign peers, with stand-ins for their environments


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """A peer that is installed: its interpreter is this one's, its script is written by the test."""
    import sys

    monkeypatch.setenv("IRONLAW_PEERS", str(tmp_path / "peers"))
    monkeypatch.setattr(foreign, "ROOT", tmp_path)
    scripts = tmp_path / "benchmarks" / "peer_scripts"
    scripts.mkdir(parents=True)
    python = tmp_path / "peers" / "stand-in" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    made = foreign.Peer(
        name="stand-in", requirements=("nothing",), script="it.py", arguments=("--precision", "int8"),
        takes=Form.ONNX, gives=Form.ONNX, shares=True,
    )  # fmt: skip
    (python.parent.parent / ".ready").write_text("nothing")

    def with_script(source: str) -> foreign.Peer:
        (scripts / "it.py").write_text(source)
        return made

    return with_script


def test_a_peer_answers_in_its_last_line_and_is_asked_once(peer, tmp_path):
    source = "import json, sys, pathlib\nprint('talk')\nf = pathlib.Path('made.onnx')\n"
    source += "f.write_text(' '.join(sys.argv[1:]))\nprint(json.dumps({'model': str(f.absolute())}))\n"
    one = peer(source)
    found = foreign.produce(one, tmp_path / "in.onnx", tmp_path / "example.npz", tmp_path / "out")
    assert found == tmp_path / "out" / "made.onnx"
    assert found.read_text().endswith("--precision int8")
    peer("raise SystemExit(1)")
    assert foreign.produce(one, tmp_path / "in.onnx", tmp_path / "example.npz", tmp_path / "out") == found


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('no such pass')", "ValueError: no such pass"),
        ("import json; print(json.dumps({'error': 'wrote no model'}))", "wrote no model"),
        ("raise SystemExit(3)", "exit code 3"),
    ],
)
def test_a_peer_that_fails_says_why(peer, tmp_path, source, reason):
    with pytest.raises(foreign.PeerFailure, match=reason):
        foreign.produce(peer(source), tmp_path / "in", tmp_path / "example", tmp_path / "out")


def test_a_refused_installation_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("IRONLAW_PEERS", str(tmp_path))
    peer = foreign.PEERS["Olive auto-opt"]
    (tmp_path / "olive").mkdir()
    (tmp_path / "olive" / ".refused").write_text("\n".join(peer.requirements) + "\nERROR: no matching distribution")
    monkeypatch.setattr(foreign.subprocess, "run", lambda *_, **__: pytest.fail("it was tried again"))
    with pytest.raises(foreign.PeerFailure, match="cannot be installed: ERROR: no matching distribution"):
        foreign.installed(peer)

"""Runs as the loop stores them, built from numbers seen on a real two-core machine, and hypothesis strategies."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from ironlaw.records import (
    Artefact,
    Bound,
    Budget,
    Cache,
    Ceiling,
    Certificate,
    Change,
    Conditions,
    Diagnosis,
    Energy,
    Environment,
    Execution,
    Gain,
    Goal,
    Identity,
    Interval,
    KernelRate,
    Ledger,
    Machine,
    Measurement,
    Objective,
    Op,
    Outcome,
    Percentiles,
    Prediction,
    Quality,
    Refusal,
    Run,
    TensorSpec,
    Term,
    TermTime,
    Trial,
)

INPUT = TensorSpec(name="image", shape=(1, 3, 224, 224), dtype="float32")
OUTPUT = TensorSpec(name="logits", shape=(1, 1000), dtype="float32")
SNIPPET = """import numpy as np, onnxruntime as ort
options = ort.SessionOptions(); options.intra_op_num_threads = 2
session = ort.InferenceSession("model.onnx", options)
image = np.load("example.npz")["image"]
print(session.run(None, {"image": image})[0].shape)
"""


def spread(value: float, share: float) -> Interval:
    return Interval(low=value * (1 - share), value=value, high=value * (1 + share))


def environment() -> Environment:
    identity = Identity(
        cpu="Intel(R) Xeon(R) Platinum 8488C",
        architecture="x86_64",
        isa=("avx2", "avx512f", "avx512_vnni", "avx512_bf16"),
        cores=2,
        memory_bytes=16_374_562_816,
        os="Linux 6.1",
        python="3.11.2",
        versions=(("onnxruntime", "1.32.0"), ("openvino", "2026.4.1"), ("torch", "2.13.0")),
    )
    conditions = Conditions(
        load_1m=0.42,
        governor="performance",
        frequency_hz=2.4e9,
        variables=(("OMP_NUM_THREADS", "2"),),
        allocator="glibc 2.36",
    )
    return Environment(identity=identity, conditions=conditions)


def machine() -> Machine:
    def ceiling(name: str, unit: str, value: float, dtype: str | None = None, threads: int = 1, **more: Any) -> Ceiling:
        return Ceiling(
            name=name,
            unit=unit,
            value=value,
            low=value * 0.94,
            high=value * 1.03,
            dtype=dtype,
            threads=threads,
            **more,
        )

    ceilings = (
        ceiling("matmul", "FLOP/s", 100e9, "fp32"),
        ceiling("matmul", "FLOP/s", 188e9, "fp32", 2),
        ceiling("matmul", "FLOP/s", 218e9, "bf16"),
        ceiling("matmul", "FLOP/s", 402e9, "bf16", 2),
        ceiling("matmul", "FLOP/s", 0.1e9, "fp16", 2),
        ceiling("matmul", "FLOP/s", 760e9, "int8", 2),
        ceiling("dram", "B/s", 18e9),
        ceiling("dram", "B/s", 31e9, threads=2, valid=False, note="a neighbour took 12 % of the CPU"),
        ceiling("cache", "B/s", 94e9, threads=2),
        ceiling("dispatch", "s", 1.1e-6),
        ceiling("fault", "s", 1.64e-6),
    )
    kernels = (
        KernelRate(
            target="torch",
            kind="conv",
            dtype="fp32",
            threads=2,
            unit="FLOP/s",
            rate=spread(71e9, 0.3),
            call_s=2.9e-6,
            shapes=96,
        ),
    )
    caches = (Cache(level=2, size_bytes=2_097_152, bandwidth_bytes_per_s=94e9, source="sweep"),)
    return Machine(environment=environment(), ceilings=ceilings, caches=caches, kernels=kernels)


def ledger(blocks: int = 16, *, timed: bool = True, total_s: float = 17.2e-3) -> Ledger:
    """A mobile convolutional network: expand, depthwise and project in each block, and one that is not counted."""
    ops = []
    for i in range(blocks):
        width, side = 16 * (1 + i // 3), 112 // (1 + i // 4)
        area = side * side * 4.0
        for kind, flops, weights in (
            ("conv", 2.0 * side * side * width * width * 6, width * width * 6 * 4.0),
            ("depthwise", 2.0 * side * side * width * 6 * 9, width * 6 * 9 * 4.0),
            ("elementwise", 1.0 * side * side * width * 6, 0.0),
        ):
            ops.append(
                Op(
                    name=f"aten::{kind}",
                    kind=kind,
                    calls=2,
                    flops=flops,
                    bytes_low=weights + area,
                    bytes_high=weights + area * width * 7,
                    shape=f"1x{width}x{side}x{side}",
                    weights_bytes=weights,
                    time_s=(flops / 71e9 + (weights + area * width * 7) / 60e9) * total_s / 17.2e-3 if timed else None,
                )
            )
    ops.append(
        Op(
            name="custom::resize",
            kind="other",
            calls=1,
            flops=None,
            bytes_low=0.0,
            bytes_high=2e6,
            time_s=4e-4 if timed else None,
        )
    )
    return Ledger(ops=tuple(ops), batch=1, source="torch profiler", observer_s=2.1e-3)


def diagnosis(
    total_s: float = 17.2e-3,
    shares: dict[Term, float] | None = None,
    *,
    dominant: Term | None = Term.COMPUTE,
    target: str = "torch",
    timed: bool = True,
    bounds: tuple[Bound, ...] | None = None,
) -> Diagnosis:
    shares = shares or {
        Term.COMPUTE: 0.55,
        Term.MEMORY: 0.14,
        Term.LATENCY: 0.12,
        Term.PAGING: 0.15,
        Term.RESIDUAL: 0.04,
    }
    why = {
        Term.COMPUTE: "convolutions at 38 % of the fp32 ceiling",
        Term.MEMORY: "18 MB across DRAM",
        Term.LATENCY: "212 dispatches of 9.6 µs",
        Term.PAGING: "1,571 minor faults a call",
    }
    terms = tuple(
        TermTime(term=t, seconds=spread(total_s * s, 0.1), evidence=why.get(t, "what the laws do not explain"))
        for t, s in shares.items()
    )
    if bounds is None:
        bounds = (
            Bound(
                change="int8 convolutions",
                attacks=Term.COMPUTE,
                speedup=2.1,
                wasted=False,
                reason="55 % of the time is convolution and the int8 ceiling is 4.0 times fp32's",
            ),
            Bound(
                change="keep freed memory",
                attacks=Term.PAGING,
                speedup=1.18,
                wasted=False,
                reason="15 % of the time is page faults",
            ),
            Bound(
                change="4-bit weights",
                attacks=Term.MEMORY,
                speedup=1.03,
                wasted=True,
                reason="weights are 2 % of the traffic at batch 1",
            ),
        )
    return Diagnosis(
        total_s=total_s,
        terms=terms,
        dominant=dominant,
        why="55 % of the time is arithmetic in convolutions; the whole intensity interval is right of the ridge",
        ledger=ledger(timed=timed, total_s=total_s),
        bounds=bounds,
        target=target,
        threads=2,
        serial_bound_s=spread(total_s * 0.62, 0.05),
        overlapped_bound_s=spread(total_s * 0.48, 0.05),
    )


def measurement(p50_s: float, *, size_bytes: int = 18_600_000, memory_bytes: int = 412_000_000) -> Measurement:
    return Measurement(
        latency_s=Percentiles(
            p50=p50_s, p90=p50_s * 1.06, p99=None, mean=p50_s * 1.01, samples=300, refused="p99 needs 459 samples"
        ),
        throughput_per_s=1 / p50_s,
        batch=1,
        launches=5,
        blocks=12,
        peak_memory_bytes=memory_bytes,
        size_bytes=size_bytes,
        load_s=0.41,
        prepare_s=0.002,
        warmup_calls=34,
        warm=True,
        faults_per_call=3.0,
        system_s_per_call=2e-5,
        cpu_s_per_call=p50_s * 1.9,
        threads_effective=1.9,
        foreign_cpu=0.01,
        energy_j=Energy(value=0.081, source="modelled"),
    )


def change(lever: str, claims: tuple[str, ...] = ("target",), **settings: Any) -> Change:
    return Change(lever=lever, version=1, settings=tuple(settings.items()), claims=claims, facts=(("nodes", 61),))


def gain(median: float, share: float = 0.025, *, settled: bool = True) -> Gain:
    return Gain(
        median=median, low=median * (1 - share), high=median * (1 + share), floor=1.021, settled=settled, launches=5
    )


def quality(drop: float | None = 0.001, half: float = 0.004, *, within: bool = True) -> Quality:
    base = 0.982
    return Quality(
        metric="accuracy",
        value=base - (drop or 0.0),
        baseline=base,
        drop=drop,
        low=None if drop is None else drop - half,
        high=None if drop is None else drop + half,
        examples=2000,
        provable=0.0015,
        within=within,
        reason="McNemar: 9 of 2000 answers differ",
    )


def certificate(converted: int = 49) -> Certificate:
    return Certificate(
        eligible=50,
        converted=converted,
        precisions=(("int8", converted), ("fp32", 61 - converted)),
        fallbacks=("aten::adaptive_avg_pool2d",),
        providers=(("CPUExecutionProvider", 61),),
        threads=2,
        proven=converted > 0,
        evidence=("profile of the session: QLinearConv x 49", "/proc/self/task: 2 threads ran"),
    )


def artefact(trial_id: str, execution: Execution, folder: str | None = None) -> Artefact:
    return Artefact(
        kind="file",
        folder=folder or f".ironlaw/artefacts/{trial_id}",
        files=("model.onnx", "example.npz", "manifest.json"),
        target=execution.target,
        execution=execution,
        inputs=(INPUT,),
        outputs=(OUTPUT,),
        snippet=SNIPPET,
        size_bytes=5_020_000,
        example="example.npz",
    )


def trial(
    trial_id: str,
    changes: tuple[Change, ...] = (),
    *,
    target: str = "onnxruntime",
    speedup: float | None = None,
    predicted: Interval | None = None,
    outcome: Outcome = Outcome.IMPROVED,
    reason: str = "",
    base_s: float = 17.2e-3,
    size_bytes: int = 18_600_000,
    memory_bytes: int = 262_000_000,
    quality: Quality | None = None,
    certificate: Certificate | None = None,
    **more: Any,
) -> Trial:
    execution = Execution(target=target, batch=1, threads=2, cpus=(0, 1), options=(("inter_op", 1),))
    return Trial(
        id=trial_id,
        changes=changes,
        execution=execution,
        outcome=outcome,
        reason=reason or outcome.cause,
        predicted=None
        if predicted is None
        else Prediction(speedup=predicted, basis="Amdahl over the convolutions", size_bytes=spread(size_bytes, 0.1)),
        measured=None
        if speedup is None
        else measurement(base_s / speedup, size_bytes=size_bytes, memory_bytes=memory_bytes),
        gain=None if speedup is None else gain(speedup, settled=outcome is not Outcome.UNSETTLED),
        quality=quality,
        certificate=certificate,
        spent_s=21.4,
        artefact=None if speedup is None else artefact(trial_id, execution),
        **more,
    )


def baseline() -> Trial:
    made = trial("t00", target="torch", speedup=1.0, outcome=Outcome.NOT_BETTER, reason="the model as it was given")
    measured = measurement(17.2e-3, memory_bytes=412_000_000)
    return dataclasses.replace(made, gain=None, artefact=None, measured=measured, quality=quality(0.0, 0.0))


def trials() -> tuple[Trial, ...]:
    ort, threads = change("onnxruntime", graph="all"), change("threads", ("threads",), intra=2)
    u8s8 = change(
        "onnxruntime_int8", ("target", "weights.dtype"), scheme="u8s8", per_channel=True, calibration="entropy"
    )
    s8s8 = change("onnxruntime_int8", ("target", "weights.dtype"), scheme="s8s8", per_channel=False)
    return (
        trial(
            "t01",
            (change("allocator", ("env.malloc",)),),
            target="torch",
            speedup=1.15,
            predicted=Interval(low=1.08, value=1.17, high=1.2),
            memory_bytes=441_000_000,
            quality=quality(0.0, 0.0015),
        ),
        trial(
            "t02",
            (ort,),
            speedup=2.9,
            predicted=Interval(low=1.9, value=2.4, high=3.1),
            quality=quality(0.0, 0.0015),
            certificate=certificate(0),
        ),
        trial(
            "t03",
            (ort, threads),
            speedup=3.07,
            predicted=Interval(low=2.1, value=2.6, high=3.3),
            quality=quality(0.0, 0.0015),
            certificate=certificate(0),
        ),
        trial(
            "t04",
            (s8s8,),
            speedup=3.37,
            predicted=Interval(low=2.8, value=4.4, high=6.0),
            size_bytes=5_020_000,
            memory_bytes=181_000_000,
            quality=quality(0.031, 0.008, within=False),
            outcome=Outcome.OVER_BUDGET,
            certificate=certificate(50),
        ),
        trial(
            "t05",
            (u8s8, threads),
            speedup=6.6,
            predicted=Interval(low=4.2, value=5.6, high=7.4),
            size_bytes=5_020_000,
            memory_bytes=176_000_000,
            quality=quality(0.002),
            certificate=certificate(49),
        ),
        trial(
            "t06",
            (change("torch_compile", backend="inductor"),),
            target="torch",
            speedup=1.81,
            predicted=Interval(low=1.3, value=1.6, high=1.9),
            memory_bytes=520_000_000,
            quality=quality(0.0, 0.0015),
        ),
        trial(
            "t07",
            (change("torch_compile", backend="inductor"), change("bf16", ("precision",))),
            target="torch",
            speedup=2.57,
            predicted=Interval(low=1.8, value=2.5, high=3.0),
            memory_bytes=505_000_000,
            quality=quality(0.001),
        ),
        trial(
            "t08",
            (change("openvino", precision="f32"),),
            target="openvino",
            speedup=3.13,
            predicted=Interval(low=2.2, value=2.7, high=3.4),
            memory_bytes=298_000_000,
            outcome=Outcome.UNSETTLED,
            reused=True,
        ),
        trial(
            "t09",
            (change("channels_last", ("layout",)),),
            target="torch",
            speedup=1.01,
            predicted=Interval(low=0.95, value=1.1, high=1.25),
            outcome=Outcome.NOT_BETTER,
        ),
        trial(
            "t10",
            (change("onnxruntime_dynamic_int8"),),
            speedup=1.0,
            predicted=Interval(low=1.0, value=1.1, high=1.2),
            outcome=Outcome.NO_OP,
            certificate=certificate(0),
        ),
        trial(
            "t11",
            (change("openvino_int8", preset="mixed"),),
            target="openvino",
            outcome=Outcome.CRASHED,
            reason="the worker ended with signal 11 (SIGSEGV) while loading model.xml",
            predicted=Interval(low=3.0, value=5.0, high=8.0),
        ),
        trial(
            "t12",
            (change("aot_inductor"),),
            target="torch",
            outcome=Outcome.BUILD_FAILED,
            reason="torch.export: data-dependent control flow in forward(), line 41",
        ),
        trial(
            "t13",
            (change("replicas", ("replicas",), count=2),),
            target="torch",
            outcome=Outcome.SCREENED_OUT,
            speedup=0.62,
            predicted=Interval(low=0.5, value=0.7, high=0.9),
        ),
    )


def refusals() -> tuple[Refusal, ...]:
    return (
        Refusal(lever="fp16", reason="fp16 matmul reaches 0.1 GFLOP/s here against 188 for fp32: the CPU converts"),
        Refusal(lever="batch", reason="the goal is latency at batch 1"),
        Refusal(lever="int4_weights", reason="bound 1.03x: weights are 2 % of the traffic"),
    )


def best_diagnosis() -> Diagnosis:
    shares = {Term.COMPUTE: 0.38, Term.MEMORY: 0.3, Term.LATENCY: 0.26, Term.PAGING: 0.01, Term.RESIDUAL: 0.05}
    bounds = (
        Bound(
            change="fuse the remaining element-wise operators",
            attacks=Term.LATENCY,
            speedup=1.14,
            wasted=False,
            reason="26 % of the time is dispatch",
        ),
        Bound(
            change="a faster accelerator",
            attacks=Term.COMPUTE,
            speedup=1.04,
            wasted=True,
            reason="kernels are too short to fill it",
        ),
    )
    made = diagnosis(2.606e-3, shares, dominant=None, target="onnxruntime", bounds=bounds)
    return dataclasses.replace(
        made, why="compute (38 %) and memory (30 %) overlap within their intervals: a bandwidth co-runner would tell"
    )


def full_run(**more: Any) -> Run:
    """Every outcome that people meet, with a best point that uses two levers."""
    values: dict[str, Any] = {
        "id": "r-5f2c1a",
        "created": "2026-11-30T15:40:12+00:00",
        "name": "models.py:efficientnet_lite0",
        "goal": Goal(max_drop=Budget(amount=0.01, relative=False), p99_s=0.02),
        "environment": environment(),
        "machine": machine(),
        "baseline": baseline(),
        "diagnosis": diagnosis(),
        "trials": trials(),
        "frontier": ("t02", "t03", "t05"),
        "best": "t05",
        "refused": refusals(),
        "account": (
            "13 candidates were tried in 4 min 38 s; 3 levers were refused.",
            "The search ended because nothing left can beat the best by its upper bound.",
        ),
        "floor": 1.021,
        "satisfied": True,
        "best_diagnosis": best_diagnosis(),
        "spent_s": 278.0,
    }
    return Run(**{**values, **more})


def baseline_only() -> Run:
    """A run that ended (or was stopped) before any candidate was measured."""
    return full_run(
        trials=(), frontier=("t00",), best="t00", best_diagnosis=None, refused=(), account=(), satisfied=False
    )


def failed_run() -> Run:
    """Every candidate failed."""
    failed = tuple(
        trial(f"f{i}", (change(f"lever_{i}"),), outcome=outcome, reason=f"it {outcome.value}")
        for i, outcome in enumerate(o for o in Outcome if o.failed)
    )
    return full_run(trials=failed, frontier=("t00",), best="t00", best_diagnosis=None)


def unknown_run() -> Run:
    """Everything that may be None is None, and nothing could be timed or counted."""
    bare = Op(name="op", kind="other", calls=1, flops=None, bytes_low=0.0, bytes_high=0.0)
    terms = (TermTime(term=Term.RESIDUAL, seconds=Interval(low=0.0, value=5e-3, high=5e-3), evidence=""),)
    unknown = Diagnosis(
        total_s=5e-3,
        terms=terms,
        dominant=None,
        why="nothing could be counted",
        ledger=Ledger(ops=(bare,), batch=1, source="none"),
        bounds=(),
    )
    measured = dataclasses.replace(
        measurement(5e-3),
        latency_s=Percentiles(p50=5e-3, p90=None, p99=None, mean=5e-3, samples=3, refused="3 samples"),
        energy_j=Energy(value=None, source="unknown"),
    )
    base = Trial(
        id="b", changes=(), execution=Execution(), outcome=Outcome.UNSETTLED, reason="busy machine", measured=measured
    )
    half = dataclasses.replace(
        base,
        id="h",
        changes=(change("threads"),),
        quality=Quality(
            metric="cosine",
            value=0.9,
            baseline=1.0,
            drop=None,
            low=None,
            high=None,
            examples=None,
            provable=None,
            within=False,
            reason="",
        ),
        certificate=Certificate(eligible=0, converted=0),
    )
    bare_machine = Machine(
        environment=dataclasses.replace(
            environment(), conditions=Conditions(load_1m=0.0, governor=None, frequency_hz=None)
        ),
        ceilings=(),
    )
    return full_run(
        machine=bare_machine,
        environment=bare_machine.environment,
        diagnosis=unknown,
        best_diagnosis=unknown,
        baseline=base,
        trials=(half,),
        frontier=(),
        best="h",
        refused=(),
        account=(),
    )


HOSTILE = """</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">'"&{{7*7}}[bold]\u202e]]>"""


def hostile_run() -> Run:
    """Names that try to leave their place: in a script, an attribute, a template, a markup."""
    bad = HOSTILE
    execution = Execution(target=bad, variables=((bad, bad),), options=((bad, bad),))
    evil = Trial(
        id=bad,
        changes=(Change(lever=bad, version=1, settings=((bad, bad),), claims=(bad,), facts=((bad, bad),)),),
        execution=execution,
        outcome=Outcome.IMPROVED,
        reason=bad,
        measured=measurement(4e-3),
        gain=gain(4.0),
        predicted=Prediction(speedup=spread(3.0, 0.2), basis=bad),
        quality=dataclasses.replace(quality(), metric=bad, reason=bad),
        certificate=Certificate(
            eligible=1,
            converted=1,
            fallbacks=(bad,),
            evidence=(bad,),
            precisions=((bad, bad),),
            providers=((bad, bad),),
        ),
        artefact=dataclasses.replace(artefact("x", execution, bad), files=(bad,), snippet=bad),
    )
    ops = (
        Op(name=bad, kind=bad, calls=1, flops=1e6, bytes_low=1e3, bytes_high=1e5, dtype=bad, shape=bad, time_s=1e-4),
    )
    nasty = dataclasses.replace(
        diagnosis(),
        why=bad,
        target=bad,
        terms=(TermTime(term=Term.COMPUTE, seconds=spread(17e-3, 0.1), evidence=bad),),
        ledger=Ledger(ops=ops, batch=1, source=bad),
        bounds=(Bound(change=bad, attacks=Term.COMPUTE, speedup=2.0, wasted=False, reason=bad),),
    )
    identity = dataclasses.replace(environment().identity, cpu=bad, versions=((bad, bad),))
    env = dataclasses.replace(environment(), identity=identity)
    return full_run(
        id=bad,
        created=bad,
        name=bad,
        environment=env,
        trials=(evil,),
        frontier=(bad,),
        best=bad,
        diagnosis=nasty,
        best_diagnosis=nasty,
        refused=(Refusal(lever=bad, reason=bad),),
        account=(bad,),
    )


EVERY = {
    "full": full_run,
    "baseline_only": baseline_only,
    "failed": failed_run,
    "unknown": unknown_run,
    "hostile": hostile_run,
}


# ---------------------------------------------------------------- hypothesis

_ratio = st.floats(min_value=1e-3, max_value=1e3)


@st.composite
def intervals(draw: st.DrawFn, values: st.SearchStrategy[float] = _ratio) -> Interval:
    low, value, high = sorted(draw(st.lists(values, min_size=3, max_size=3)))
    return Interval(low=low, value=value, high=high)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Runs of any size and outcome, wide in every number, with parts missing at random."""
    made = []
    for i in range(draw(st.integers(min_value=0, max_value=5))):
        speed = draw(st.none() | _ratio)
        one = trial(
            f"t{i}",
            tuple(change(draw(st.text(min_size=1, max_size=12))) for _ in range(draw(st.integers(1, 3)))),
            outcome=draw(st.sampled_from(Outcome)),
            speedup=speed,
            predicted=draw(st.none() | intervals()),
            size_bytes=draw(st.integers(0, 10**12)),
            memory_bytes=draw(st.integers(0, 10**12)),
            quality=draw(st.none() | st.builds(quality, st.none() | st.floats(-1, 1), st.floats(0, 1))),
            certificate=draw(st.none() | st.builds(certificate, st.integers(0, 50))),
        )
        keep_gain = draw(st.booleans())
        made.append(one if keep_gain else dataclasses.replace(one, gain=None))
    measured = [t.id for t in made if t.measured is not None]
    weights = draw(st.dictionaries(st.sampled_from(Term), st.floats(-0.2, 1.0), min_size=1))
    total = draw(st.floats(min_value=1e-7, max_value=1e4))
    diagnosed = diagnosis(total, weights, dominant=draw(st.none() | st.sampled_from(Term)), timed=draw(st.booleans()))
    return full_run(
        name=draw(st.text(max_size=30)),
        goal=Goal(objective=draw(st.sampled_from(Objective))),
        trials=tuple(made),
        frontier=tuple(measured),
        best=draw(st.sampled_from(["t00", *measured])),
        diagnosis=diagnosed,
        best_diagnosis=draw(st.none() | st.just(diagnosed)),
        satisfied=draw(st.booleans()),
    )

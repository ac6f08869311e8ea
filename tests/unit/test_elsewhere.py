"""A ledger carried to machines with round numbers: every answer is worked out by hand."""

import dataclasses
import io

import pytest

from ironlaw import api, hardware
from ironlaw.diagnose.elsewhere import elsewhere
from ironlaw.diagnose.fitting import fit
from ironlaw.hardware import PublishedMachine, Sourced
from ironlaw.records import Diagnosis, Interval, Ledger, Op, Term, TermTime, UserError, exactly, from_json, to_json
from ironlaw.report.elsewhere import elsewhere_table


def number(value):
    return None if value is None else Sourced(value=value, source="a datasheet")


def there(*, kind="gpu", peaks=(("fp32", 1e12),), bandwidth=1e11, cache=1e6, memory=1e9, flash=None):
    return PublishedMachine(
        name="round",
        title="Round Numbers",
        vendor="V",
        kind=kind,
        year=2020,
        peak_flops_per_s={dtype: number(value) for dtype, value in peaks},
        memory_bandwidth_bytes_per_s=number(bandwidth),
        cache_bytes=number(cache),
        memory_bytes=number(memory),
        flash_bytes=number(flash),
    )


def op(kind="matmul", **facts):
    plain = {"calls": 1, "flops": 0.0, "bytes_low": 0.0, "bytes_high": 0.0}
    return Op(name=facts.pop("name", kind), kind=kind, **{**plain, **facts})


# 1e9 FLOP: 1 ms of arithmetic there; 4 to 8 MB: 40 to 80 us of traffic there
PRODUCT = op(flops=1e9, bytes_low=4e6, bytes_high=8e6, weights_bytes=4e6, time_s=20e-3)
# 1e6 FLOP: 1 us; 80 MB for sure: 800 us
STREAM = op("elementwise", flops=1e6, bytes_low=8e7, bytes_high=8e7, time_s=8e-3)
# 1e8 FLOP: 100 us; 5 to 20 MB: 50 to 200 us, on both sides of the ridge
STRADDLER = op("depthwise", flops=1e8, bytes_low=5e6, bytes_high=2e7, time_s=2e-3)


def diagnosis(*ops, latency=0.0, total=None, bound=None):
    """Here at twice the roof (efficiency 0.5) unless ``bound`` says otherwise."""
    work = sum(o.time_s or 0.0 for o in ops)
    seconds = {Term.MEMORY: 0.0, Term.COMPUTE: work, Term.LATENCY: latency, Term.PAGING: 0.0, Term.RESIDUAL: 0.0}
    return Diagnosis(
        total_s=total or work + latency,
        terms=tuple(TermTime(term=t, seconds=exactly(s), evidence="") for t, s in seconds.items()),
        dominant=None,
        why="",
        ledger=Ledger(ops=ops, batch=1, source="test"),
        bounds=(),
        overlapped_bound_s=exactly(bound if bound is not None else 0.5 * work + latency),
    )


def carried(*ops, machine=None, counted=True, **here):
    found = diagnosis(*ops, **here)
    return elsewhere(found, machine or there(), counted=found.ledger if counted else None)


def seconds(found, term):
    return next(t.seconds for t in found.terms if t.term is term)


def near(interval, low, high):
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))


# ---------------------------------------------------------------- rooflines by hand


def test_a_product_is_compute_there_and_its_roofline_is_exact():
    found = carried(PRODUCT)
    (only,) = found.ops
    assert only.arithmetic_s == pytest.approx(1e-3)
    near(only.traffic_s, 40e-6, 80e-6)
    assert only.side is Term.COMPUTE
    assert only.here_s == 20e-3
    near(found.overlapped_bound_s, 1e-3, 1e-3)
    near(found.serial_bound_s, 1.04e-3, 1.08e-3)
    assert found.dominant is Term.COMPUTE
    assert found.at_most == pytest.approx(20.0)
    near(found.speedup, 20 / 1.08, 20.0)


def test_a_stream_is_memory_there():
    found = carried(STREAM)
    near(seconds(found, Term.MEMORY), 800e-6, 800e-6)
    assert found.dominant is Term.MEMORY
    near(found.overlapped_bound_s, 800e-6, 800e-6)
    near(found.serial_bound_s, 801e-6, 801e-6)


def test_an_operator_that_straddles_the_ridge_leaves_it_undetermined():
    found = carried(STRADDLER)
    assert found.ops[0].side is None
    near(seconds(found, Term.MEMORY), 0.0, 200e-6)
    near(seconds(found, Term.COMPUTE), 0.0, 100e-6)
    assert found.dominant is None
    assert "undetermined" in found.why
    near(found.overlapped_bound_s, 100e-6, 200e-6)


def test_terms_and_bounds_add_up_over_operators():
    found = carried(PRODUCT, STREAM, STRADDLER)
    near(seconds(found, Term.MEMORY), 800e-6, 1000e-6)
    near(seconds(found, Term.COMPUTE), 1000e-6, 1100e-6)
    near(found.overlapped_bound_s, 1.9e-3, 2.0e-3)
    assert found.dominant is None, "1.0 ms is in both intervals"


def test_dispatch_is_not_known_there_and_no_more_than_here():
    found = carried(PRODUCT, latency=5e-3)
    near(seconds(found, Term.LATENCY), 0.0, 5e-3)
    assert found.dominant is None
    assert "apart from dispatch, compute" in found.why
    near(found.overlapped_bound_s, 1e-3, 6e-3)
    near(found.speedup, 25e-3 / 6.08e-3, 25.0)


def test_the_catalogue_places_a_product_as_its_numbers_say():
    t4 = hardware.machine("t4")
    found = carried(PRODUCT, machine=t4)
    assert found.ops[0].arithmetic_s == pytest.approx(1e9 / 8.1e12)
    assert found.ops[0].traffic_s.high == pytest.approx(8e6 / 3.2e11)
    assert any("8.1e+12" in s and "datasheet" in s for s in found.sources)
    assert any("3.2e+11" in s for s in found.sources)


# ---------------------------------------------------------------- caches


def test_without_counting_again_the_low_end_falls_to_the_weights():
    near(carried(PRODUCT, counted=False).ops[0].traffic_s, 40e-6, 80e-6)
    near(carried(STREAM, counted=False).ops[0].traffic_s, 0.0, 800e-6)


def test_what_fits_into_its_cache_need_not_cross_memory():
    found = carried(PRODUCT, machine=there(cache=8e6))
    near(found.ops[0].traffic_s, 0.0, 80e-6)
    near(carried(PRODUCT, machine=there(cache=7e6)).ops[0].traffic_s, 40e-6, 80e-6)


def test_a_cache_that_is_not_published_is_said():
    found = carried(PRODUCT, machine=there(cache=None))
    assert found.cache_bytes is None
    assert any("cache is not published" in note for note in found.notes)


# ---------------------------------------------------------------- what is not published


def test_a_dtype_without_a_peak_is_said_and_never_replaced():
    found = carried(PRODUCT, machine=hardware.machine("tpu-v4"))
    assert found.ops[0].arithmetic_s is None
    assert found.speedup is None
    assert found.overlapped_bound_s is None
    assert found.dominant is None
    assert found.helps is None
    assert any("no fp32 peak" in note and "100.0%" in note for note in found.notes)
    assert not any("bf16" in source for source in found.sources)
    assert found.at_most == pytest.approx(20e-3 / (4e6 / 1.2e12)), "traffic still bounds it"


def test_the_same_product_in_bf16_has_a_peak_there():
    found = carried(dataclasses.replace(PRODUCT, dtype="bfloat16"), machine=hardware.machine("tpu-v4"))
    assert found.ops[0].arithmetic_s == pytest.approx(1e9 / 2.75e14)
    assert found.speedup is not None


def test_a_trace_of_integer_arithmetic_does_not_spoil_the_bound():
    index = op("elementwise", flops=10.0, bytes_low=80.0, bytes_high=80.0, dtype="int64", time_s=1e-6)
    found = carried(PRODUCT, index)
    assert found.speedup is not None
    assert any("no int64 peak" in note for note in found.notes)


def test_double_precision_has_its_own_peak():
    found = carried(dataclasses.replace(PRODUCT, dtype="float64"), machine=there(peaks=(("fp64", 5e11),)))
    assert found.ops[0].arithmetic_s == pytest.approx(2e-3)


def test_an_operator_that_was_not_counted_leaves_no_bound_from_above():
    found = carried(PRODUCT, op("other", name="mylib::magic", flops=None, time_s=10e-3))
    assert found.speedup is None
    assert found.at_most == pytest.approx(30.0)
    assert any("mylib::magic" in note for note in found.notes)


def test_a_microcontroller_without_a_published_bandwidth_has_no_memory_term():
    found = carried(PRODUCT, machine=hardware.machine("nrf52840"))
    assert [t.term for t in found.terms] == [Term.COMPUTE, Term.LATENCY]
    near(seconds(found, Term.COMPUTE), 1e9 / 64e6, 1e9 / 64e6)
    assert found.dominant is None
    assert any("bandwidth is not published" in note for note in found.notes)
    assert found.at_most == pytest.approx(20e-3 / (1e9 / 64e6))
    assert found.helps is False


# ---------------------------------------------------------------- would it help


def test_it_helps_when_it_is_ahead_even_at_the_efficiency_seen_here():
    found = carried(PRODUCT)  # 20 ms here at half of the roof; there 1.08 ms / 0.5
    assert found.helps is True
    assert f"{20 / 2.16:.3g}x" in found.advice


def test_it_does_not_help_when_even_the_bound_is_no_faster():
    found = carried(dataclasses.replace(PRODUCT, time_s=1.01e-3))
    assert found.helps is False
    assert "at most 1" in found.advice


def test_dispatch_that_may_stay_leaves_the_help_undetermined():
    found = carried(dataclasses.replace(PRODUCT, time_s=2e-3), latency=48e-3)
    assert found.at_most == pytest.approx(50.0)
    assert found.helps is None
    assert "48 ms of dispatch" in found.advice


def test_unknown_efficiency_here_leaves_it_undetermined():
    found = elsewhere(dataclasses.replace(diagnosis(PRODUCT), overlapped_bound_s=None), there())
    assert found.helps is None


# ---------------------------------------------------------------- does it fit


def test_weights_beyond_the_memory_do_not_fit():
    found = carried(PRODUCT, machine=there(memory=3.9e6))
    assert found.fits is False
    assert found.helps is False
    assert "does not fit" in found.advice


def test_everything_that_is_ever_touched_fits():
    assert carried(PRODUCT, machine=there(memory=8e6)).fits is True


def test_between_the_widest_operator_and_all_of_them_it_is_undetermined():
    two = op("elementwise", calls=2, flops=2.0, bytes_low=8e6, bytes_high=8e6)
    book = Ledger(ops=(two,), batch=1, source="test")
    assert fit(book, there(memory=3.9e6))[0] is False
    assert fit(book, there(memory=4e6))[0] is None
    assert fit(book, there(memory=8e6))[0] is True


def test_a_microcontroller_keeps_weights_in_flash_and_activations_in_sram():
    layer = op(flops=1e5, bytes_low=3e5, bytes_high=3.1e5, weights_bytes=3e5)
    book = Ledger(ops=(layer,), batch=1, source="test")
    chip = there(kind="mcu", memory=10_000, flash=3e5)
    assert fit(book, chip) == (True, "weights 300 kB of 300 kB flash; activations at most 10 kB of 10 kB SRAM")
    answer, words = fit(book, there(kind="mcu", memory=10_000, flash=1e5))
    assert answer is False
    assert "at int8 the weights would take about 75 kB" in words
    assert fit(book, there(kind="mcu", memory=9_000, flash=3e5))[0] is False
    assert fit(book, there(kind="mcu", memory=9_000, flash=None))[0] is None


def test_all_weights_of_the_model_count_where_they_are_known():
    book = Ledger(ops=(PRODUCT,), batch=1, source="test")
    assert fit(book, there(memory=8e6))[0] is True
    assert fit(book, there(memory=8e6), 5e6)[0] is False


def test_memory_that_is_not_part_of_the_machine_is_not_judged():
    assert carried(PRODUCT, machine=hardware.machine("epyc-7763")).fits is None


# ---------------------------------------------------------------- the surface


@pytest.mark.parametrize("name", sorted(hardware.machines()))
def test_every_published_machine_gives_an_answer(name):
    found = api.elsewhere(diagnosis(PRODUCT, STREAM, STRADDLER, latency=1e-3), name)
    assert found.name == name
    assert found.sources
    assert found.at_most is None or found.at_most > 0.0
    if found.speedup:
        assert found.speedup.low <= found.speedup.value <= found.speedup.high
    for term in found.terms:
        assert 0.0 <= term.seconds.low <= term.seconds.value <= term.seconds.high


def test_an_unknown_machine_is_the_users_error():
    with pytest.raises(UserError, match="catalogue"):
        api.elsewhere(diagnosis(PRODUCT), "t5")


def test_the_answer_survives_storage_and_is_readable():
    from rich.console import Console

    whole = dataclasses.replace(diagnosis(PRODUCT), elsewhere=(carried(PRODUCT, latency=1e-3),))
    again = from_json(Diagnosis, to_json(whole))
    assert again == whole
    assert isinstance(again.elsewhere[0].speedup, Interval)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(elsewhere_table(again.elsewhere[0]))
    text = console.export_text()
    for part in ("Round Numbers", "would help", "compute", "a datasheet", "copies between host and device"):
        assert part in text

"""Figures of a mask measurement: from times of single calls to a table and ratios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Results = Mapping[str, Sequence[Mapping[str, Any]]]  # library -> one result for each case
COLD, WARM = 0, -1
BASELINE = "llguidance"


def summary(results: Results, sources: Sequence[str]) -> dict[str, Any]:
    """Each library over all cases, over each source, and over the cases that all follow alike."""
    indices = range(len(sources))
    alike = [index for index in indices if all(_follows(r[index]) for r in results.values())]
    found: dict[str, Any] = {
        "all": {name: figures([r[i] for i in indices]) for name, r in results.items()},
        "common": {name: figures([r[i] for i in alike]) for name, r in results.items()},
    }
    for source in dict.fromkeys(sources):
        chosen = [index for index in indices if sources[index] == source]
        found[source] = {name: figures([r[i] for i in chosen]) for name, r in results.items()}
    if BASELINE in results and alike:
        base = found["common"][BASELINE]
        found[f"of {BASELINE}'s, common"] = {
            name: {
                key: round(value[key] / base[key], 2)
                for key in ("compile_ms_p50", "warm_us_mean", "warm_us_p99_9", "cold_us_mean")
                if key in value and base.get(key)
            }
            for name, value in found["common"].items()
        }
    return found


def figures(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One library over some cases."""
    compiled = [result for result in results if "compile_ns" in result]
    valid = [ok for result in compiled for ok in result["valid_accepted"]]
    invalid = [ok for result in compiled for ok in result["invalid_accepted"]]
    return {
        "schemas": len(results),
        "compiled_percent": _percent(len(compiled), len(results)),
        "valid_accepted_percent": _percent(sum(valid), len(valid)),
        "invalid_accepted": sum(invalid),
        "invalid_accepted_percent": _percent(sum(invalid), len(invalid)),
        **_times("compile_ms", [result["compile_ns"] / 1e6 for result in compiled], (50, 99)),
        **_mask_times("warm_us", compiled, WARM),
        **_mask_times("cold_us", compiled, COLD),
    }


def _mask_times(name: str, compiled: Iterable[Mapping[str, Any]], which: int) -> dict[str, Any]:
    times = [ns / 1e3 for result in compiled for ns in result["mask_ns"][which]]
    return {**_times(name, times, (50, 99, 99.9)), "num_masks": len(times)}


def _times(name: str, values: Sequence[float], percentiles: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    found = {f"{name}_mean": round(float(np.mean(values)), 2)}
    for percentile in percentiles:
        key = f"{name}_p{str(percentile).replace('.', '_')}"
        found[key] = round(float(np.percentile(values, percentile)), 2)
    return found


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None


def _follows(result: Mapping[str, Any]) -> bool:
    return (
        "compile_ns" in result and bool(result["valid_accepted"]) and all(result["valid_accepted"])
    )


def table(groups: Mapping[str, Mapping[str, Any]]) -> str:
    """The groups as text, a row for each library."""
    columns = (
        ("compiled %", "compiled_percent"),
        ("valid ok %", "valid_accepted_percent"),
        ("invalid ok", "invalid_accepted"),
        ("compile ms p50", "compile_ms_p50"),
        ("p99", "compile_ms_p99"),
        ("warm us mean", "warm_us_mean"),
        ("p50", "warm_us_p50"),
        ("p99", "warm_us_p99"),
        ("p99.9", "warm_us_p99_9"),
        ("cold us mean", "cold_us_mean"),
        ("p99.9", "cold_us_p99_9"),
    )
    lines = []
    for group, libraries in groups.items():
        if group.startswith("of "):
            lines += [f"{group}: {name} {ratios}" for name, ratios in libraries.items()]
            continue
        count = next(iter(libraries.values()))["schemas"]
        head = f"{group} ({count} schemas)"
        lines.append(f"\n{head:24}" + "".join(f"{title:>15}" for title, _ in columns))
        for name, values in libraries.items():
            cells = "".join(f"{values.get(key, '-')!s:>15}" for _, key in columns)
            lines.append(f"{name:24}{cells}")
    return "\n".join(lines)

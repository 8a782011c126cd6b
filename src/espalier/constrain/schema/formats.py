"""Formats of strings, as patterns of their texts.

Each inner pattern is sound: whatever it has is of the format by the standard named beside it. Where
`outer` is there, it has every text of the format, so that the format can be negated too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from espalier.constrain.pattern import ANY_CHARACTER, Both, Repeat
from espalier.constrain.schema.ecma_regex import parse_ecma_regex
from espalier.constrain.schema.texts import Texts


@dataclass(frozen=True, slots=True)
class _Format:
    inner: str
    outer: str | None = None
    max_chars: int | None = None


_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
_OFFSET = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:"
_TIME = rf"{_CLOCK}[0-5][0-9](?:\.[0-9]{{1,9}})?{_OFFSET}"
_TIME_OUTER = rf"{_CLOCK}(?:[0-5][0-9]|60)(?:\.[0-9]+)?{_OFFSET}"
# Python's datetime, as most validators, begins with year 1.
_DATE_INNER = f"(?!0000){_DATE}"

_TIME_OF_DURATION = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAYS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION = f"P(?:[0-9]+W|{_DAYS}(?:{_TIME_OF_DURATION})?|{_TIME_OF_DURATION})"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "(?:" + "|".join(
    [f"(?:{_H16}:){{6}}{_LS32}", f"::(?:{_H16}:){{5}}{_LS32}"]
    + [
        f"(?:(?:{_H16}:){{0,{before}}}{_H16})?::(?:{_H16}:){{{after}}}{_LS32}"
        for before, after in ((0, 4), (1, 3), (2, 2), (3, 1), (4, 0))
    ]
    + [f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}", f"(?:(?:{_H16}:){{0,6}}{_H16})?::"]
) + ")"  # fmt: skip

_AN = "[0-9A-Za-z]"
_ANH = "[0-9A-Za-z-]"
# RFC 1123, without labels that have "--" as their third and fourth character (RFC 5891).
_LABEL = (
    f"(?:{_AN}|{_AN}{_AN}|{_AN}{_ANH}{_AN}|{_AN}{_ANH}{_ANH}{_AN}"
    f"|{_AN}{_ANH}(?:{_AN}{_ANH}|-{_AN}){_ANH}{{0,58}}{_AN})"
)
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
_ATEXT = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]"
# RFC 5321 in the form of a dot-string; quoted local parts and address literals are left out.
_EMAIL = rf"(?=[^@]{{1,64}}@){_ATEXT}+(?:\.{_ATEXT}+)*@{_HOSTNAME}"

# RFC 3986, appendix A.
_UNRESERVED = r"0-9A-Za-z._~\-"
_SUB_DELIMS = "!$&'()*+,;="
_PERCENT = "%[0-9A-Fa-f]{2}"
_PCHAR = f"(?:[{_UNRESERVED}{_SUB_DELIMS}:@]|{_PERCENT})"
_NC = f"(?:[{_UNRESERVED}{_SUB_DELIMS}@]|{_PERCENT})"
_REG_NAME = f"(?:[{_UNRESERVED}{_SUB_DELIMS}]|{_PERCENT})*"
_HOST = rf"(?:\[(?:{_IPV6}|v[0-9A-Fa-f]+\.[{_UNRESERVED}{_SUB_DELIMS}:]+)\]|{_REG_NAME})"
_AUTHORITY = f"(?:(?:[{_UNRESERVED}{_SUB_DELIMS}:]|{_PERCENT})*@)?{_HOST}(?::[0-9]*)?"
_ABEMPTY = f"(?:/{_PCHAR}*)*"
_ABSOLUTE = f"/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
_ROOTLESS = f"{_PCHAR}+(?:/{_PCHAR}*)*"
_NOSCHEME = f"{_NC}+(?:/{_PCHAR}*)*"
_REST = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = f"[A-Za-z][0-9A-Za-z+.-]*:(?://{_AUTHORITY}{_ABEMPTY}|{_ABSOLUTE}|{_ROOTLESS})?{_REST}"
_RELATIVE = f"(?://{_AUTHORITY}{_ABEMPTY}|{_ABSOLUTE}|{_NOSCHEME})?{_REST}"
_POINTER = "(?:/(?:[^~/]|~0|~1)*)*"
_RELATIVE_POINTER = f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"
_UUID = "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"


def _exact(source: str) -> _Format:
    return _Format(source, source)


_FORMATS = {
    "date": _Format(_DATE_INNER, _DATE),  # RFC 3339
    "time": _Format(_TIME, _TIME_OUTER),  # RFC 3339, without leap seconds
    "date-time": _Format(f"{_DATE_INNER}[Tt]{_TIME}", f"{_DATE}[Tt]{_TIME_OUTER}"),
    "duration": _exact(_DURATION),  # RFC 3339, appendix A
    "email": _Format(_EMAIL, max_chars=254),
    "idn-email": _Format(_EMAIL, max_chars=254),  # those in ASCII
    "hostname": _Format(_HOSTNAME, max_chars=253),
    "idn-hostname": _Format(_HOSTNAME, max_chars=253),  # those in ASCII
    "ipv4": _exact(_IPV4),
    "ipv6": _exact(_IPV6),
    "uri": _exact(_URI),
    "uri-reference": _exact(f"(?:{_URI}|{_RELATIVE})"),
    "iri": _Format(_URI),  # those in ASCII
    "iri-reference": _Format(f"(?:{_URI}|{_RELATIVE})"),
    "uuid": _exact(_UUID),  # RFC 4122
    "json-pointer": _exact(_POINTER),  # RFC 6901
    "relative-json-pointer": _exact(_RELATIVE_POINTER),
}
FORMATS = frozenset(_FORMATS)


@cache
def format_texts(name: str) -> Texts:
    """Texts of a format that is in FORMATS; not always all of them."""
    entry = _FORMATS[name]
    pattern = parse_ecma_regex(f"^(?:{entry.inner})$")
    if entry.max_chars is not None:
        pattern = Both(pattern, Repeat(ANY_CHARACTER, 0, entry.max_chars))
    return Texts(pattern)


@cache
def format_outer_texts(name: str) -> Texts | None:
    """A pattern that has every text of a format, with few others; None where there is none."""
    outer = _FORMATS[name].outer
    return None if outer is None else Texts(parse_ecma_regex(f"^(?:{outer})$"))

"""JSON schemas like those of real programs: records of twenty domains, alone, in pages, in events.

The records are written for this bench. They hold what such schemas hold: identifiers, enums,
bounded numbers, patterns, formats, optional and nullable members, lists, nested records, choices
between records, and a few that are recursive.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_DATE = {"type": "string", "format": "date"}
_TIME = {"type": "string", "format": "date-time"}
_UUID = {"type": "string", "format": "uuid"}
_EMAIL = {"type": "string", "format": "email"}
_BOOL = {"type": "boolean"}


def text(low: int = 1, high: int = 60) -> Schema:
    return {"type": "string", "minLength": low, "maxLength": high}


def whole(low: int = 0, high: int = 10_000) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def number(low: float = 0, high: float = 1_000_000) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high}


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


def pattern(regex: str) -> Schema:
    return {"type": "string", "pattern": regex}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def many(schema: Schema, low: int = 0, high: int = 5) -> Schema:
    return {"type": "array", "items": schema, "minItems": low, "maxItems": high}


def record(optional: Schema | None = None, /, **members: Schema) -> Schema:
    """A closed object; the members of `optional` may be left out."""
    return {
        "type": "object",
        "properties": {**members, **(optional or {})},
        "required": list(members),
        "additionalProperties": False,
    }


_ADDRESS = record(
    {"state": pattern("^[A-Z]{2}$"), "line2": text(0)},
    street=text(),
    city=text(),
    postcode=pattern("^[0-9]{5}(-[0-9]{4})?$"),
    country=one_of("DE", "FR", "GB", "JP", "US"),
)
_MONEY = record(amount=number(), currency=one_of("EUR", "GBP", "JPY", "USD"))
_POINT = record(lat=number(-90, 90), lon=number(-180, 180))

RECORDS: dict[str, Schema] = {
    "order": record(
        {"coupon": pattern("^[A-Z0-9]{6,10}$"), "gift": _BOOL},
        id=_UUID,
        placed=_TIME,
        status=one_of("new", "paid", "shipped", "returned"),
        lines=many(record(sku=pattern("^[A-Z]{3}-[0-9]{4}$"), count=whole(1, 99), price=_MONEY), 1),
        ship_to=_ADDRESS,
    ),
    "person": record(
        {"nickname": text(), "phone": pattern(r"^\+[0-9]{7,15}$")},
        name=text(),
        born=_DATE,
        email=_EMAIL,
        tags=many(text(1, 12)),
        home=nullable(_ADDRESS),
    ),
    "api_call": record(
        {"timeout_s": number(0, 600), "retries": whole(0, 5)},
        method=one_of("GET", "POST", "PUT", "DELETE"),
        path=pattern("^(/[a-z0-9_-]+)+$"),
        headers={"type": "object", "additionalProperties": text()},
        body={"anyOf": [{"type": "null"}, text(0), record(ref=_UUID)]},
    ),
    "service_config": record(
        {"tls": record(cert=text(), key=text(), min_version=one_of("1.2", "1.3"))},
        host=text(),
        port=whole(1, 65_535),
        log_level=one_of("debug", "info", "warning", "error"),
        workers=whole(1, 256),
        features={"type": "object", "additionalProperties": _BOOL},
    ),
    "calendar_event": record(
        {"location": text(), "repeats": one_of("daily", "weekly", "monthly", None)},
        title=text(1, 120),
        starts=_TIME,
        minutes=whole(5, 1_440),
        guests=many(record(email=_EMAIL, is_optional=_BOOL)),
    ),
    "product": record(
        {"discount": number(0, 1), "weight_kg": number(0, 500)},
        name=text(),
        sku=pattern("^[A-Z]{3}-[0-9]{4}$"),
        price=_MONEY,
        stock=whole(),
        colours=many(one_of("red", "green", "blue", "black", "white")),
    ),
    "invoice": record(
        {"note": text(0, 200)},
        number=pattern("^20[0-9]{2}-[0-9]{5}$"),
        issued=_DATE,
        due=_DATE,
        lines=many(record(text=text(), total=_MONEY, tax_percent=one_of(0, 7, 19)), 1),
    ),
    "weather": record(
        {"gusts_kmh": number(0, 400)},
        station=text(),
        at=_POINT,
        celsius=number(-90, 60),
        humidity=whole(0, 100),
        sky=one_of("clear", "cloudy", "rain", "snow", "fog"),
    ),
    "flight": record(
        {"gate": pattern("^[A-Z][0-9]{1,2}$")},
        number=pattern("^[A-Z]{2}[0-9]{2,4}$"),
        origin=pattern("^[A-Z]{3}$"),
        destination=pattern("^[A-Z]{3}$"),
        departs=_TIME,
        seats=record(economy=whole(0, 400), business=whole(0, 60)),
    ),
    "ticket": record(
        {"assignee": nullable(text())},
        key=pattern("^[A-Z]{2,5}-[0-9]{1,5}$"),
        title=text(1, 120),
        kind=one_of("bug", "feature", "task"),
        priority=whole(1, 5),
        labels=many(text(1, 16)),
    ),
    "payment": record(
        {"memo": text(0, 80)},
        amount=_MONEY,
        method={
            "anyOf": [
                record(kind={"const": "card"}, last4=pattern("^[0-9]{4}$"), month=whole(1, 12)),
                record(kind={"const": "bank"}, iban=pattern("^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$")),
                record(kind={"const": "cash"}),
            ]
        },
        captured=_BOOL,
    ),
    "recipe": record(
        {"calories": whole(0, 5_000)},
        title=text(),
        serves=whole(1, 20),
        ingredients=many(record(name=text(), grams=number(0, 5_000)), 1),
        steps=many(text(1, 200), 1),
    ),
    "server_metrics": record(
        None,
        host=text(),
        at=_TIME,
        cpu_percent=many(number(0, 100), 1, 4),
        memory=record(used_mb=whole(), free_mb=whole()),
        is_healthy=_BOOL,
    ),
    "user_profile": record(
        {"bio": text(0, 160), "website": text(0, 80)},
        handle=pattern("^[a-z][a-z0-9_]{2,15}$"),
        followers=whole(0, 10_000_000),
        role=one_of("admin", "editor", "reader"),
        settings=record(theme=one_of("dark", "light"), emails=_BOOL, language=one_of("de", "en")),
    ),
    "book": record(
        {"series": record(name=text(), index=whole(1, 99))},
        title=text(),
        authors=many(text(), 1, 4),
        isbn=pattern("^97[89][0-9]{10}$"),
        year=whole(1450, 2100),
        genres=many(one_of("fiction", "history", "science", "poetry")),
    ),
    "sensor_reading": record(
        {"battery": number(0, 1)},
        device=pattern("^[0-9A-F]{12}$"),
        at=_TIME,
        values=many(number(-1000, 1000), 1),
        unit=one_of("C", "Pa", "lx", "%"),
    ),
    "job_posting": record(
        {"salary": record(low=whole(), high=whole(), currency=one_of("EUR", "USD"))},
        title=text(),
        company=text(),
        is_remote=_BOOL,
        level=one_of("junior", "middle", "senior"),
        skills=many(text(1, 20), 1),
    ),
    "medical_note": record(
        {"follow_up": _DATE},
        patient=_UUID,
        seen=_TIME,
        blood_pressure=record(systolic=whole(50, 250), diastolic=whole(30, 150)),
        diagnoses=many(pattern(r"^[A-Z][0-9]{2}(\.[0-9]{1,2})?$")),
        note=text(0, 300),
    ),
    "game_character": record(
        {"guild": nullable(text())},
        name=text(1, 30),
        house=one_of("Gryffindor", "Hufflepuff", "Ravenclaw", "Slytherin"),
        level=whole(1, 99),
        stats=record(strength=whole(1, 20), wisdom=whole(1, 20), luck=whole(1, 20)),
        inventory=many(record(item=text(), count=whole(1, 99))),
    ),
    "search_query": record(
        {"sort": one_of("relevance", "newest", "oldest"), "page": whole(1, 1000)},
        query=text(1, 100),
        filters=many(record(field=text(1, 20), op=one_of("=", "<", ">", "in"), value=text()), 0, 4),
        limit=whole(1, 100),
    ),
}

RECURSIVE: dict[str, Schema] = {
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {"node": record(name=text(1, 20), children=many({"$ref": "#/$defs/node"}))},
    },
    "comment_thread": {
        "$ref": "#/$defs/comment",
        "$defs": {
            "comment": record(
                {"replies": many({"$ref": "#/$defs/comment"})}, author=text(1, 20), text=text()
            )
        },
    },
    "expression": {
        "$ref": "#/$defs/term",
        "$defs": {
            "term": {
                "anyOf": [
                    number(-100, 100),
                    record(
                        op=one_of("+", "-", "*", "/"),
                        left={"$ref": "#/$defs/term"},
                        right={"$ref": "#/$defs/term"},
                    ),
                ]
            }
        },
    },
    "menu": {
        "$ref": "#/$defs/entry",
        "$defs": {
            "entry": record(
                {"submenu": many({"$ref": "#/$defs/entry"}), "shortcut": pattern("^Ctrl-[A-Z]$")},
                label=text(1, 20),
                is_enabled=_BOOL,
            )
        },
    },
}


def realistic_schemas() -> dict[str, Schema]:
    """Each record alone, as a page of a list, as the data of an event; and recursive ones."""
    schemas: dict[str, Schema] = {}
    for name, schema in RECORDS.items():
        schemas[name] = schema
        schemas[f"{name}_page"] = record(
            {"next": nullable(text())}, items=many(schema, 0, 3), total=whole()
        )
        schemas[f"{name}_event"] = record(
            {"previous": nullable(schema)},
            id=_UUID,
            type={"const": f"{name}.changed"},
            occurred=_TIME,
            data=schema,
        )
    return {**schemas, **RECURSIVE}

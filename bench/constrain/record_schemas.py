"""Twenty JSON schemas of records as services exchange them; all closed, all bounded."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def text(low: int = 1, high: int = 40) -> Schema:
    return {"type": "string", "minLength": low, "maxLength": high}


def whole(low: int = 0, high: int = 100_000) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def record(**properties: Schema) -> Schema:
    """An object that has all of these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def several(items: Schema, low: int = 1, high: int = 3) -> Schema:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


YES_NO: Schema = {"type": "boolean"}
DATE: Schema = {"type": "string", "format": "date"}
_ADDRESS = record(street=text(), house_number=whole(1, 999), city=text(), country=text(2, 20))
_PRICE = record(currency=one_of("EUR", "USD", "GBP", "JPY"), cents=whole())

RECORD_SCHEMAS: tuple[tuple[str, Schema], ...] = (
    ("a customer", record(customer_id=whole(), full_name=text(), address=_ADDRESS, active=YES_NO)),
    (
        "an order",
        record(
            order_number=whole(),
            ordered_on=DATE,
            lines=several(record(article=text(), quantity=whole(1, 99), unit_price=_PRICE)),
            shipping_method=one_of("standard", "express", "pick up"),
        ),
    ),
    (
        "a flight",
        record(
            flight_number={"type": "string", "pattern": "^[A-Z]{2}[0-9]{3,4}$"},
            departure_airport={"type": "string", "pattern": "^[A-Z]{3}$"},
            arrival_airport={"type": "string", "pattern": "^[A-Z]{3}$"},
            departure_date=DATE,
            cabin_class=one_of("economy", "business", "first"),
        ),
    ),
    (
        "a support ticket",
        record(
            ticket_id=whole(),
            priority=one_of("low", "normal", "high", "urgent"),
            category=one_of("billing", "technical problem", "account", "feedback"),
            summary=text(1, 80),
            needs_human_attention=YES_NO,
        ),
    ),
    (
        "a weather report",
        record(
            station_name=text(),
            temperature_celsius=whole(-40, 50),
            relative_humidity_percent=whole(0, 100),
            wind_direction=one_of("north", "east", "south", "west"),
            conditions=one_of("clear", "cloudy", "rain", "snow", "thunderstorm"),
        ),
    ),
    (
        "a recipe",
        record(
            title=text(),
            servings=whole(1, 20),
            ingredients=several(record(ingredient=text(), amount_in_grams=whole(1, 5000)), 2, 4),
            preparation_minutes=whole(1, 600),
        ),
    ),
    (
        "a bank transfer",
        record(
            sender_account=text(5, 20),
            receiver_account=text(5, 20),
            amount=_PRICE,
            execution_date=DATE,
            reference_text=text(1, 60),
        ),
    ),
    ("a sensor reading", record(sensor=text(), measured_value=whole(), unit=one_of("V", "A", "W"))),
    (
        "a calendar event",
        record(
            event_title=text(),
            starts_on=DATE,
            ends_on=DATE,
            attendees=several(text(1, 24)),
            is_all_day_event=YES_NO,
        ),
    ),
    (
        "a product review",
        record(product_name=text(), rating_out_of_five=whole(1, 5), review_text=text(1, 120)),
    ),
    (
        "a job posting",
        record(
            job_title=text(),
            employment_type=one_of("full time", "part time", "contract", "internship"),
            location=_ADDRESS,
            remote_work_possible=YES_NO,
        ),
    ),
    (
        "a parcel",
        record(
            tracking_number={"type": "string", "pattern": "^[0-9]{12}$"},
            current_status=one_of("announced", "in transit", "out for delivery", "delivered"),
            destination=_ADDRESS,
            weight_in_grams=whole(1, 31_500),
        ),
    ),
    (
        "a song",
        record(
            song_title=text(), artist=text(), duration_in_seconds=whole(1, 3600), explicit=YES_NO
        ),
    ),
    (
        "a patient's appointment",
        record(
            patient_initials={"type": "string", "pattern": "^[A-Z]\\.[A-Z]\\.$"},
            department=one_of("cardiology", "radiology", "paediatrics", "surgery"),
            appointment_date=DATE,
            first_visit=YES_NO,
        ),
    ),
    (
        "a server's configuration",
        record(
            host_name=text(),
            listening_port=whole(1, 65_535),
            log_level=one_of("debug", "info", "warning", "error"),
            allowed_origins=several(text(1, 24)),
            maximum_connections=whole(1, 10_000),
        ),
    ),
    (
        "a chess game",
        record(
            white_player=text(),
            black_player=text(),
            result=one_of("1-0", "0-1", "1/2-1/2"),
            number_of_moves=whole(1, 300),
        ),
    ),
    (
        "a book",
        record(
            book_title=text(),
            author=text(),
            year_of_publication=whole(1450, 2030),
            genres=several(one_of("novel", "poetry", "history", "science", "biography")),
        ),
    ),
    (
        "a rental contract",
        record(tenant=text(), flat=_ADDRESS, monthly_rent=_PRICE, begins_on=DATE, furnished=YES_NO),
    ),
    (
        "a function call",
        record(
            function_name=one_of("search_documents", "send_message", "create_reminder"),
            arguments=record(query_text=text(1, 60), maximum_results=whole(1, 50)),
        ),
    ),
    (
        "an error report",
        record(
            error_code={"type": "string", "pattern": "^E[0-9]{4}$"},
            error_message=text(1, 80),
            affected_components=several(text(1, 20)),
            can_be_retried=YES_NO,
        ),
    ),
)

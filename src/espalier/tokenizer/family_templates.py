"""Chat templates for model files that bring none, by the control tokens of their vocabulary.

Each is used only where the vocabulary has the tokens that the template is made of.
"""

from __future__ import annotations

from dataclasses import dataclass

_ALTERNATION = """\
{%- for message in turns %}
{%- if message.role != ('user' if loop.index0 is even else 'assistant') %}
{{- raise_exception('after an optional system message, user and assistant take turns') }}
{%- endif %}
{%- endfor %}
"""

_CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

_LLAMA3 = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{{- message.content + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# The system message is the beginning of the first user turn.
_FIRST_SYSTEM = """\
{%- set has_system = messages and messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
"""

_GEMMA = (
    _FIRST_SYSTEM
    + _ALTERNATION
    + """\
{{- bos_token }}
{%- for message in turns %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\\n' }}
{%- if loop.first and has_system %}
{{- messages[0].content + '\\n\\n' }}
{%- endif %}
{{- message.content + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\\n' }}
{%- endif %}
"""
)

_LLAMA2 = (
    _FIRST_SYSTEM
    + _ALTERNATION
    + """\
{%- for message in turns %}
{%- if message.role == 'user' %}
{{- bos_token + '[INST] ' }}
{%- if loop.first and has_system %}
{{- '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' }}
{%- endif %}
{{- message.content + ' [/INST]' }}
{%- else %}
{{- ' ' + message.content + ' ' + eos_token }}
{%- endif %}
{%- endfor %}
"""
)

_MISTRAL = (
    _FIRST_SYSTEM
    + _ALTERNATION
    + """\
{{- bos_token }}
{%- for message in turns %}
{%- if message.role == 'user' %}
{{- '[INST] ' }}
{%- if loop.first and has_system %}
{{- messages[0].content + '\\n\\n' }}
{%- endif %}
{{- message.content + '[/INST]' }}
{%- else %}
{{- message.content + eos_token }}
{%- endif %}
{%- endfor %}
"""
)

# Before the markers were tokens of their own, a space came before the second.
_MISTRAL_1 = _MISTRAL.replace("'[/INST]'", "' [/INST]'")


@dataclass(frozen=True, slots=True)
class FamilyTemplate:
    """A template, the families it is for (empty: all), and the control tokens that it needs."""

    name: str
    source: str
    families: tuple[str, ...]
    tokens: tuple[str, ...]


# The first that fits is taken: first those that are certain by their tokens.
FAMILY_TEMPLATES = (
    FamilyTemplate("chatml", _CHATML, (), ("<|im_start|>", "<|im_end|>")),
    FamilyTemplate(
        "llama3", _LLAMA3, (), ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    ),
    FamilyTemplate("gemma", _GEMMA, (), ("<start_of_turn>", "<end_of_turn>")),
    FamilyTemplate("mistral", _MISTRAL, (), ("[INST]", "[/INST]", "</s>")),
    FamilyTemplate("mistral", _MISTRAL_1, ("mistral",), ("<s>", "</s>")),
    FamilyTemplate("llama-2", _LLAMA2, ("llama",), ("<s>", "</s>")),
)

"""The sample grammars of the public test data, byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.constrain.tiny_vocabulary import TinyTokenizer, allowed

from espalier.constrain.ebnf import ebnf_grammar

BYTES = TinyTokenizer([b"<end>", *(bytes([byte]) for byte in range(256))], {0}, {0})

# name -> texts of the language, and texts that are not
SAMPLES: dict[str, tuple[list[str], list[str]]] = {
    "arithmetic": (["1=2\n", "x1 +2=y \n( a*b\n) = 3\n\n"], ["1=2", "1=\n", "X=1\n", "1==2\n"]),
    "c": (
        ["int main(){}", "int f(char c){return c*2;//x\n}", "int f(){while(a<b){int intx = 1;}}"],
        ["main(){}", "int f(){return 1}", "intf(){}", "int f(){while(a){}}"],
    ),
    "chess": (["1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n10. O-O exd8=Q+\n"], ["1. e4 e5\n", "1. e9"]),
    "english": (["Hello, world!", "a\nb\tc"], ["", "a  b", "caf\u00e9"]),
    "japanese": (["\u3053\u3093\u306b\u3061\u306f \u4e16\u754c"], ["hello", "\u3053 \u3053 "]),
    "json": (
        ['{}', '{"a": [1, -2.5e+3, true , null]}', '{"\\u00e9": "\\n", "b":{} } ', '{\n  "a":[]}'],
        ["", "[]", '{"a"}', "{'a':1}", '{"a":01}', '{"a":1,}'],
    ),
    "json_arr": (["[\n1,\n2]", '[\n{"a":[] },\n"b"]', "[\n]"], ["[]", "[\n1,2]", "[\n1] "]),
    "list": (["- a\n", "- a b\n- \u00e9\n"], ["", "- \n", "-a\n", "- a"]),
    "vllm-sql": (
        ["SELECTcol_1fromtable_2wherecol_2=1"],
        ["SELECT col_1", "SELECTcol_1fromtable_2wherecol_2=3"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_sample_grammar_accepts_and_refuses(name: str, shared_data: Path) -> None:
    grammar = ebnf_grammar((shared_data / "gbnf" / f"{name}.gbnf").read_text("utf-8"), BYTES)
    for texts, is_right in zip(SAMPLES[name], (True, False), strict=True):
        for text in texts:
            matcher = grammar.matcher()
            for byte in text.encode():
                if byte + 1 not in allowed(matcher):
                    break
                matcher.accept(byte + 1)
            else:
                assert matcher.is_complete == is_right, text
                continue
            assert not is_right, text

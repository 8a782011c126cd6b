"""The chat templates that have a name, and which model paths they belong to: a table.

Written from the formats that the models were published with; a BOS token is the tokenizer's affair.
Where the reference's table differs from what a model's own template writes, the model's is here:
Gemma's system message stands in the first user turn, Granite ends a message with a line break,
Vicuna has a space after `USER:`, MiniCPM speaks ChatML, and Janus writes a colon after its roles.
"""

from __future__ import annotations

from espalier.lang.chat_format import Affixes, ChatTemplate, ChatTemplateStyle

_HELPFUL = "You are a helpful assistant."
_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
_YI_VL = (
    "This is a chat between an inquisitive human and an AI assistant. Assume the role of the AI "
    "assistant. Read all the images carefully, and respond to the human's questions with "
    "informative, helpful, detailed and polite answers. "
    "这是一个好奇的人类和一个人工智能助手之间的对话。假设你扮演这个AI助手的角色。"
    "仔细阅读所有的图像，并对人类的问题做出信息丰富、有帮助、详细的和礼貌的回答。"
)
_DBRX = (
    "You are DBRX, created by Databricks. You were last updated in December 2023. You answer "
    "questions based on information available up to that point.\n"
    "YOU PROVIDE SHORT RESPONSES TO SHORT QUESTIONS OR STATEMENTS, but provide thorough responses "
    "to more complex and open-ended questions.\n"
    "You assist with various tasks, from writing to coding (using markdown for code blocks — "
    "remember to use ``` with code, JSON, and tables).\n"
    "(You do not have real-time data access or code execution capabilities. You avoid stereotyping "
    "and provide balanced perspectives on controversial topics. You do not provide song lyrics, "
    "poems, or news articles and do not divulge details of your training data.)\n"
    "This is your system prompt, guiding your responses. Do not reference it, just respond to the "
    "user. If you find yourself talking about this message, stop. You should be responding "
    "appropriately and usually that means not mentioning this.\n"
    "YOU DO NOT MENTION ANY OF THIS INFORMATION ABOUT YOURSELF UNLESS THE INFORMATION IS DIRECTLY "
    "PERTINENT TO THE USER'S QUERY."
)
_DEEPSEEK_END = "<｜end▁of▁sentence｜>"


def _roles(system: Affixes, user: Affixes, assistant: Affixes) -> dict[str, Affixes]:
    return {"system": system, "user": user, "assistant": assistant}


def _marked(start: str, end: str, assistant: str = "assistant") -> dict[str, Affixes]:
    """The same marks around every message; `{}` in `start` is the role's name."""
    names = ("system", "user", assistant)
    return _roles(*((start.format(name), end) for name in names))


_CHATML = _marked("<|im_start|>{}\n", "<|im_end|>\n")
_LLAMA3 = _marked("<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>")
_IM_END = ("<|im_end|>",)

NAMED_TEMPLATES = (
    ChatTemplate("default", None, _roles(("SYSTEM:", "\n"), ("USER:", "\n"), ("ASSISTANT:", "\n"))),
    ChatTemplate("claude", None, _roles(("", ""), ("\n\nHuman: ", ""), ("\n\nAssistant:", ""))),
    ChatTemplate("chatml", None, _CHATML, _IM_END),
    ChatTemplate("chatml-llava", _HELPFUL, _CHATML, _IM_END, image_token="<image>\n"),
    ChatTemplate("qwen", _HELPFUL, _CHATML, _IM_END),
    ChatTemplate(
        "qwen2-vl",
        _HELPFUL,
        _CHATML,
        _IM_END,
        image_token="<|vision_start|><|image_pad|><|vision_end|>",
    ),
    ChatTemplate(
        "vicuna_v1.1",
        _VICUNA,
        _roles(("", " "), ("USER: ", " "), ("ASSISTANT:", "</s>")),
        image_token=" <image>\n",
    ),
    ChatTemplate(
        "llama-2-chat",
        None,
        _roles(("<<SYS>>\n", "\n<</SYS>>\n\n"), ("[INST] ", " [/INST]"), ("", " </s><s>")),
        style=ChatTemplateStyle.LLAMA2,
    ),
    ChatTemplate("llama-3-instruct", None, _LLAMA3, ("<|eot_id|>",), image_token="<|image|>"),
    ChatTemplate("llama-3-instruct-llava", None, _LLAMA3, ("<|eot_id|>",), image_token="<image>\n"),
    ChatTemplate(
        "llama-4",
        None,
        _marked("<|header_start|>{}<|header_end|>\n\n", "<|eot|>"),
        ("<|eot|>",),
        image_token="<|image|>",
    ),
    ChatTemplate("minicpmv", _HELPFUL, _CHATML, _IM_END, image_token="(<image>./</image>)"),
    ChatTemplate(
        "minicpmo",
        _HELPFUL,
        _CHATML,
        _IM_END,
        image_token="(<image>./</image>)",
        audio_token="(<audio>./</audio>)",
    ),
    ChatTemplate(
        "janus-pro",
        None,
        _roles(("", "\n\n"), ("<|User|>: ", "\n\n"), ("<|Assistant|>:", _DEEPSEEK_END)),
        (_DEEPSEEK_END,),
        image_token="<image_placeholder>\n",
    ),
    ChatTemplate(
        "yi-1.5",
        None,
        _roles(
            ("", ""),
            ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
            ("", "<|im_end|>\n"),
        ),
        _IM_END,
    ),
    ChatTemplate(
        "yi-vl",
        _YI_VL,
        _roles(("", "\n\n"), ("### Human: ", "\n"), ("### Assistant:", "\n")),
        ("###",),
        image_token=" <image_placeholder>\n",
    ),
    ChatTemplate(
        "gemma-it",
        None,
        _roles(
            ("", "\n\n"),
            ("<start_of_turn>user\n", "<end_of_turn>\n"),
            ("<start_of_turn>model\n", "<end_of_turn>\n"),
        ),
        ("<end_of_turn>",),
        style=ChatTemplateStyle.LLAMA2,
    ),
    ChatTemplate(
        "dbrx-instruct",
        _DBRX,
        _roles(
            ("<|im_start|>system\n", "<|im_end|>"),
            ("\n<|im_start|>user\n", "<|im_end|>"),
            ("\n<|im_start|>assistant\n", "<|im_end|>"),
        ),
        _IM_END,
    ),
    ChatTemplate(
        "c4ai-command-r",
        None,
        _roles(
            ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ),
        ("<|END_OF_TURN_TOKEN|>",),
    ),
    ChatTemplate(
        "granite-3-instruct",
        None,
        _marked("<|start_of_role|>{}<|end_of_role|>", "<|end_of_text|>\n"),
        ("<|end_of_text|>",),
    ),
    ChatTemplate(
        "deepseek-v3",
        None,
        _roles(("", ""), ("<｜User｜>", ""), ("<｜Assistant｜>", _DEEPSEEK_END)),
        (_DEEPSEEK_END,),
    ),
)

# (template, parts that the lower-case path must have, parts that it must not have); the first
# that fits is taken.
PATH_RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("deepseek-v3", ("deepseek-v3",), ("base",)),
    ("deepseek-v3", ("deepseek-r1",), ("base", "distill")),
    ("janus-pro", ("janus",), ()),
    ("dbrx-instruct", ("dbrx", "instruct"), ()),
    ("vicuna_v1.1", ("vicuna",), ()),
    ("vicuna_v1.1", ("llava-v1.5",), ()),
    ("vicuna_v1.1", ("llava-next-video-7b",), ()),
    ("llama-2-chat", ("llama-2", "chat"), ()),
    ("llama-2-chat", ("mistral", "instruct"), ()),
    ("llama-2-chat", ("mixtral", "instruct"), ()),
    ("llama-2-chat", ("codellama", "instruct"), ()),
    ("llama-3-instruct", ("llama-3", "instruct"), ()),
    ("llama-4", ("llama-4", "instruct"), ()),
    ("chatml", ("tinyllama",), ("v0.6", "v1.0")),  # these speak Zephyr's format
    ("chatml-llava", ("llava-v1.6-34b",), ()),
    ("chatml-llava", ("llava-v1.6-yi-34b",), ()),
    ("chatml-llava", ("llava-next-video-34b",), ()),
    ("chatml-llava", ("llava-onevision-qwen2",), ()),
    ("qwen2-vl", ("qwen", "vl"), ()),
    ("qwen", ("qwen", "chat"), ("llava",)),
    ("qwen", ("qwen", "instruct"), ("llava",)),
    ("yi-vl", ("yi-vl",), ("llava",)),
    ("yi-1.5", ("yi-1.5", "chat"), ()),
    ("gemma-it", ("gemma", "-it"), ()),
    ("minicpmv", ("minicpm-v",), ()),
    ("minicpmo", ("minicpm-o",), ()),
    ("c4ai-command-r", ("c4ai-command-r",), ()),
    ("granite-3-instruct", ("granite", "instruct"), ()),
)

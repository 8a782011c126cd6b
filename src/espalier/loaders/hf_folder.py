"""A Hugging Face model folder: config.json and safetensors files.

Knows which files a folder has and reads them; what the configuration means is for models/.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from espalier.errors import ModelFileError, UnsupportedError
from espalier.exec.executor import RawTensor
from espalier.loaders.safetensors import SafetensorsShards

_CONFIG = "config.json"
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_MAX_JSON_BYTES = 64 << 20


def read_json_object(path: Path) -> dict[str, object]:
    """The JSON object that a file holds; raises ModelFileError where it holds none."""
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise ModelFileError(f"{path} is larger than {_MAX_JSON_BYTES >> 20} MiB.")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(
            f"{path} does not exist; a Hugging Face model folder holds it. Fetch the whole folder."
        ) from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON text: {error}.") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} holds no JSON object.")
    return value


class HfFolder:
    """A model folder, opened and checked.

    Raises ModelFileError where a file is missing or broken, UnsupportedError for weights in a
    format other than safetensors.

    Attributes:
        path: the folder.
        config: what config.json holds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: Mapping[str, object] = read_json_object(path / _CONFIG)
        self._shards = SafetensorsShards(_weight_files(path))

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor by name, fastest dimension last."""
        return self._shards.tensor_shapes

    def tensor(self, name: str) -> RawTensor:
        """The tensor of that name, a view of a map; raises ModelFileError where there is none."""
        return self._shards.tensor(name)

    def release_pages(self) -> None:
        """Gives back the memory of what was read; it is read again when asked for."""
        self._shards.release_pages()


def _weight_files(folder: Path) -> list[Path]:
    if (folder / _INDEX).exists():
        return _indexed_files(folder)
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise ModelFileError(
            f"{folder} has {len(found)} safetensors files and no {_INDEX} that lists them. Fetch "
            "the whole folder."
        )
    if any(folder.glob("*.bin")) or any(folder.glob("*.pth")):
        raise UnsupportedError(
            f"{folder} has weights in PyTorch's pickle format only; safetensors is supported. "
            "Convert the model first."
        )
    raise ModelFileError(f"{folder} has no safetensors file. Fetch the whole folder.")


def _indexed_files(folder: Path) -> list[Path]:
    weight_map = read_json_object(folder / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{folder / _INDEX} has no weight_map that names files.")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        # The index comes from the network: a name must not lead out of the folder.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelFileError(
                f"{folder / _INDEX} names {name!r}, which is not a safetensors file in the folder."
            )
    return [folder / name for name in names]
